# Enables CUDA when nvcc is there and works with this host compiler; sets found_cuda.

find_program(RIDGELINE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(RIDGELINE_NVCC)
# wgmma and TMA exist for 90a only; plain 90 rejects them.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a CACHE STRING "GPU architectures to compile for")
endif()
# The PTX of such a target runs on no other GPU, so only its machine code is kept.
list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^([0-9]+a)$" "\\1-real")
option(RIDGELINE_LINEINFO "Line numbers in GPU code, for ncu and compute-sanitizer" OFF)
# Tried in a project of its own first, so that an nvcc which does not work here only turns CUDA off.
if(RIDGELINE_NVCC AND NOT CMAKE_CUDA_COMPILER)
  include(CheckLanguage)
  if(NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} "${RIDGELINE_NVCC}")
  endif()
  check_language(CUDA)
endif()
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  # CMake 3.25 knows no flag for CUDA C++20 and would silently emit none.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
  if(RIDGELINE_LINEINFO)
    string(APPEND CMAKE_CUDA_FLAGS_RELEASE " -lineinfo")
  endif()
  # Compressed GPU code takes a sixth of the room. The smallest form wants a driver of CUDA 12.4, which programs
  # of CUDA 13 have in any case.
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    string(APPEND CMAKE_CUDA_FLAGS_RELEASE " --compress-mode=size")
  else()
    string(APPEND CMAKE_CUDA_FLAGS_RELEASE " -Xfatbin=-compress-all")
  endif()
  find_package(CUDAToolkit REQUIRED)
  find_path(RIDGELINE_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(RIDGELINE_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(RIDGELINE_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(RIDGELINE_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  mark_as_advanced(RIDGELINE_CUDNN_INCLUDE RIDGELINE_CUDNN_LIBRARY RIDGELINE_NCCL_INCLUDE
                   RIDGELINE_NCCL_LIBRARY)
  set(found_cuda TRUE)
endif()
