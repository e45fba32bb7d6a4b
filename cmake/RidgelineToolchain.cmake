# Language standard, build type, warnings, sanitizers, ccache and mold.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# Objects that fit a program and a shared library alike, at the same speed: nothing of ours is
# replaceable by the loader but what a shared library exports by name.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# No -march: Highway picks the instruction set at run time. -g1 keeps line numbers for profilers, and costs an eighth of
# the compiling.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
if(NOT RIDGELINE_UNITY)
  string(APPEND CMAKE_CXX_FLAGS_RELEASE " -g1")
endif()
# GCC collects garbage from 128 MB on, which takes a fifth of its time. From 1 GB on it needs up to 1.6 GB a job.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()
# A program leaves out the functions that nothing in it calls.
add_compile_options($<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-ffunction-sections>)
add_link_options($<$<CONFIG:Release>:-Wl,--gc-sections>)

find_program(RIDGELINE_CCACHE ccache)
mark_as_advanced(RIDGELINE_CCACHE)
if(RIDGELINE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER "${RIDGELINE_CCACHE}")
  # Without these ccache passes by what is compiled with a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros
                                  "${RIDGELINE_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${RIDGELINE_CCACHE}")
endif()

find_program(RIDGELINE_MOLD mold)
mark_as_advanced(RIDGELINE_MOLD)
if(RIDGELINE_MOLD)
  include(CheckLinkerFlag)
  check_linker_flag(CXX "-fuse-ld=mold" RIDGELINE_LINKS_WITH_MOLD)
  if(RIDGELINE_LINKS_WITH_MOLD)
    add_link_options("-fuse-ld=mold")
  endif()
endif()

if(RIDGELINE_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${RIDGELINE_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize-recover=all>
                      $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${RIDGELINE_SANITIZE})
else()
  # A fault that writes past its end ends the program instead of going on.
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong>
                      $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<CONFIG:Release>>:-U_FORTIFY_SOURCE>
                      $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<CONFIG:Release>>:-D_FORTIFY_SOURCE=2>)
  add_link_options(-Wl,-z,relro,-z,now)
endif()

# Private to our own targets, so that no flag of ours reaches a project that uses the library.
function(ridgeline_warnings target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra>
                                           $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
  # GCC 12 sees copies out of bounds in its own std::string. In a system header it keeps that to itself; in a precompiled
  # one it does not.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread>)
  endif()
  if(RIDGELINE_WERROR)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
                                             "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings>")
  endif()
endfunction()
