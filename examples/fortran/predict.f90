! Asks a model file about one sample, through the C interface: predict MODEL NUMBER...
!   gfortran examples/fortran/predict.f90 -L DIR -lridgeline
program predict
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    integer(c_int) function ridgeline_load(path, model) bind(c)
      import
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), intent(out) :: model
    end function
    integer(c_int) function ridgeline_prepare(model, batch, device, threads, input, predictor) bind(c)
      import
      type(c_ptr), value :: model
      integer(c_int64_t), value :: batch
      character(kind=c_char), intent(in) :: device(*)
      integer(c_int), value :: threads, input
      type(c_ptr), intent(out) :: predictor
    end function
    integer(c_int64_t) function ridgeline_input_size(predictor) bind(c)
      import
      type(c_ptr), value :: predictor
    end function
    integer(c_int64_t) function ridgeline_output_size(predictor) bind(c)
      import
      type(c_ptr), value :: predictor
    end function
    integer(c_int) function ridgeline_run(predictor, samples, count, outputs) bind(c)
      import
      type(c_ptr), value :: predictor
      real(c_float), intent(in) :: samples(*)
      integer(c_int64_t), value :: count
      real(c_float), intent(out) :: outputs(*)
    end function
    subroutine ridgeline_free_model(model) bind(c)
      import
      type(c_ptr), value :: model
    end subroutine
    subroutine ridgeline_free_predictor(predictor) bind(c)
      import
      type(c_ptr), value :: predictor
    end subroutine
  end interface
  integer(c_int), parameter :: float32 = 1
  type(c_ptr) :: model, predictor
  character(len=4096) :: text
  real(c_float), allocatable :: sample(:), answer(:)
  integer :: i

  call get_command_argument(1, text)
  if (ridgeline_load(trim(text) // c_null_char, model) /= 0) error stop "the model cannot be loaded"
  if (ridgeline_prepare(model, 1_c_int64_t, "cpu" // c_null_char, 1, float32, predictor) /= 0) &
    error stop "the model cannot be prepared"
  allocate(sample(ridgeline_input_size(predictor)), answer(ridgeline_output_size(predictor)))
  if (command_argument_count() - 1 /= size(sample)) error stop "the model takes another count of numbers"
  do i = 1, size(sample)
    call get_command_argument(i + 1, text)
    read (text, *) sample(i)
  end do
  if (ridgeline_run(predictor, sample, 1_c_int64_t, answer) /= 0) error stop "the sample was refused"
  do i = 1, size(answer)
    print '(es14.6)', answer(i)
  end do
  call ridgeline_free_predictor(predictor)
  call ridgeline_free_model(model)
end program
