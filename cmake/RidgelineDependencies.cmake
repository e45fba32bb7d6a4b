# Finds what the library links. Each optional part ends in a RIDGELINE_HAVE_<PART> of ON or OFF.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(hwy REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PNG REQUIRED)
find_package(JPEG REQUIRED)
find_package(CURL REQUIRED)
find_package(CLI11 REQUIRED)
find_path(RIDGELINE_TOMLPP_INCLUDE toml++/toml.h REQUIRED)
mark_as_advanced(RIDGELINE_TOMLPP_INCLUDE)

# ridgeline_settle(PART found): RIDGELINE_HAVE_PART from the option RIDGELINE_PART and what was found.
function(ridgeline_settle part found remedy)
  if(RIDGELINE_${part} STREQUAL "ON" AND NOT found)
    message(FATAL_ERROR "RIDGELINE_${part}=ON but it was not found: ${remedy}")
  endif()
  if(found AND NOT RIDGELINE_${part} STREQUAL "OFF")
    set(have ON)
  else()
    set(have OFF)
  endif()
  set(RIDGELINE_HAVE_${part} ${have} PARENT_SCOPE)
  message(STATUS "Ridgeline: ${part} ${have}")
endfunction()

# Highway's own package offers whatever it was built as; a static archive saves a library at start.
get_target_property(hwy_includes hwy::hwy INTERFACE_INCLUDE_DIRECTORIES)
find_library(RIDGELINE_HWY_STATIC NAMES libhwy.a)
mark_as_advanced(RIDGELINE_HWY_STATIC)
set(ridgeline_highway hwy::hwy)
if(RIDGELINE_HWY_STATIC)
  set(ridgeline_highway ${RIDGELINE_HWY_STATIC})
endif()
# Each instruction set adds a quarter to the compiling of a kernel. CPUs without AVX2 (before 2013, and some Atoms) take
# the portable one.
set(ridgeline_highway_targets "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4)")

# Debian's package asks for OpenCL's loader too, and fails hard without it.
set(found_onednn FALSE)
if(NOT RIDGELINE_ONEDNN STREQUAL "OFF")
  find_package(OpenCL QUIET)
  if(OpenCL_FOUND)
    find_package(dnnl QUIET)
  endif()
  # oneDNN's threads are OpenMP's: their number is set through it.
  find_package(OpenMP QUIET COMPONENTS CXX)
  if(TARGET DNNL::dnnl AND OpenMP_CXX_FOUND)
    set(found_onednn TRUE)
  endif()
endif()
ridgeline_settle(ONEDNN ${found_onednn} "install libdnnl-dev and ocl-icd-opencl-dev")

set(found_mpi FALSE)
if(NOT RIDGELINE_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  set(found_mpi ${MPI_CXX_FOUND})
endif()
ridgeline_settle(MPI "${found_mpi}" "install libopenmpi-dev")

# Only headers of Boost are used: Beast and Asio.
set(found_serve FALSE)
if(NOT RIDGELINE_SERVE STREQUAL "OFF")
  find_package(Boost 1.74 QUIET)
  find_package(simdjson QUIET)
  if(TARGET Boost::headers AND TARGET simdjson::simdjson)
    set(found_serve TRUE)
  endif()
endif()
ridgeline_settle(SERVE ${found_serve} "install libboost-dev and libsimdjson-dev")

# onnx.proto asks for the small runtime of protobuf, which needs no descriptors. CMake's own module would look for
# the full one too.
set(found_onnx FALSE)
if(NOT RIDGELINE_ONNX STREQUAL "OFF")
  find_program(RIDGELINE_PROTOC protoc)
  find_library(RIDGELINE_PROTOBUF_LIBRARY protobuf-lite)
  find_path(RIDGELINE_PROTOBUF_INCLUDE google/protobuf/message_lite.h)
  find_path(RIDGELINE_ONNX_PROTO_DIR onnx.proto PATH_SUFFIXES onnx)
  mark_as_advanced(RIDGELINE_PROTOC RIDGELINE_PROTOBUF_LIBRARY RIDGELINE_PROTOBUF_INCLUDE
                   RIDGELINE_ONNX_PROTO_DIR)
  if(RIDGELINE_PROTOC AND RIDGELINE_PROTOBUF_LIBRARY AND RIDGELINE_PROTOBUF_INCLUDE AND
     RIDGELINE_ONNX_PROTO_DIR)
    set(found_onnx TRUE)
  endif()
endif()
ridgeline_settle(ONNX ${found_onnx} "install libprotobuf-dev, protobuf-compiler and libonnx-dev")

set(found_cuda FALSE)
if(NOT RIDGELINE_CUDA STREQUAL "OFF")
  include(RidgelineCuda)
endif()
ridgeline_settle(CUDA ${found_cuda} "put nvcc on the PATH or set CMAKE_CUDA_COMPILER")

# nanobind is a package of the Python that the module is for: Python_EXECUTABLE, else the environment
# that scripts/python-env makes, else whichever Python is found. A sanitizer's library would have to be
# loaded before Python itself.
set(found_python FALSE)
if(NOT RIDGELINE_PYTHON STREQUAL "OFF" AND NOT RIDGELINE_SANITIZE)
  set(python_env ${PROJECT_SOURCE_DIR}/build/python-env/bin/python)
  if(NOT DEFINED Python_EXECUTABLE AND EXISTS ${python_env})
    set(Python_EXECUTABLE ${python_env})
  endif()
  find_package(Python 3.11 QUIET COMPONENTS Interpreter Development.Module
               OPTIONAL_COMPONENTS Development.SABIModule)
  if(Python_FOUND)
    execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir RESULT_VARIABLE failed
                    OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT failed)
      set(found_python TRUE)
    endif()
  endif()
endif()
ridgeline_settle(PYTHON ${found_python} "scripts/python-env makes a Python environment with nanobind")
