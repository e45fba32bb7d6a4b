// Asks a model file about one sample, through the C interface: predict MODEL NUMBER...
//   rustc -O examples/rust/predict.rs -L DIR -l ridgeline
use std::ffi::{c_char, c_int, c_void, CStr, CString};

#[repr(C)]
struct Model {
    _private: [u8; 0],
}
#[repr(C)]
struct Predictor {
    _private: [u8; 0],
}

extern "C" {
    fn ridgeline_last_error() -> *const c_char;
    fn ridgeline_load(path: *const c_char, model: *mut *mut Model) -> c_int;
    fn ridgeline_free_model(model: *mut Model);
    fn ridgeline_prepare(
        model: *const Model, batch: i64, device: *const c_char, threads: c_int, input: c_int,
        predictor: *mut *mut Predictor,
    ) -> c_int;
    fn ridgeline_free_predictor(predictor: *mut Predictor);
    fn ridgeline_input_size(predictor: *const Predictor) -> i64;
    fn ridgeline_output_size(predictor: *const Predictor) -> i64;
    fn ridgeline_run(
        predictor: *mut Predictor, samples: *const c_void, count: i64, outputs: *mut f32,
    ) -> c_int;
}

const FLOAT32: c_int = 1;

fn checked(status: c_int) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    Err(unsafe { CStr::from_ptr(ridgeline_last_error()) }.to_string_lossy().into_owned())
}

/// A model prepared for one sample at a time on the calling thread.
struct Net(*mut Predictor);

impl Net {
    fn load(path: &str) -> Result<Net, String> {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        let cpu = CString::new("cpu").unwrap();
        let (mut model, mut predictor) = (std::ptr::null_mut(), std::ptr::null_mut());
        unsafe {
            checked(ridgeline_load(path.as_ptr(), &mut model))?;
            let status = ridgeline_prepare(model, 1, cpu.as_ptr(), 1, FLOAT32, &mut predictor);
            ridgeline_free_model(model);
            checked(status)?;
        }
        Ok(Net(predictor))
    }

    fn run(&mut self, sample: &[f32]) -> Result<Vec<f32>, String> {
        let wanted = unsafe { ridgeline_input_size(self.0) } as usize;
        if sample.len() != wanted {
            return Err(format!("the model takes {} numbers", wanted));
        }
        let mut outputs = vec![0f32; unsafe { ridgeline_output_size(self.0) } as usize];
        checked(unsafe { ridgeline_run(self.0, sample.as_ptr().cast(), 1, outputs.as_mut_ptr()) })?;
        Ok(outputs)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        unsafe { ridgeline_free_predictor(self.0) }
    }
}

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (model, numbers) = arguments.split_first().ok_or("usage: predict MODEL NUMBER...")?;
    let sample: Result<Vec<f32>, _> = numbers.iter().map(|text| text.parse::<f32>()).collect();
    let answer = Net::load(model)?.run(&sample.map_err(|error| error.to_string())?)?;
    for value in answer {
        println!("{}", value);
    }
    Ok(())
}
