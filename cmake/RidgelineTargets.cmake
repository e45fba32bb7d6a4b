# One target per folder. A folder links only the folders that its own list names, and those point
# down: cli -> engine -> {nn, data, dist, prof} -> plan -> ops -> core.

# Library `ridgeline_<name>` from the *.cpp of the current folder (RECURSE: below it too; GLOB: these
# patterns instead). LINKS are seen by users of the headers, PRIVATE_LINKS are not. COLD: code that
# runs a few times a second at most, so that it is compiled quickly instead. PRECOMPILE: what most of
# its sources include. A folder that holds only headers becomes an interface library.
function(ridgeline_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "RECURSE;COLD" "" "GLOB;LINKS;PRIVATE_LINKS;DEFINES;PRECOMPILE")
  set(target ridgeline_${name})
  if(NOT arg_GLOB)
    set(arg_GLOB *.cpp)
  endif()
  set(how GLOB)
  if(arg_RECURSE)
    set(how GLOB_RECURSE)
  endif()
  list(TRANSFORM arg_GLOB PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  file(${how} sources CONFIGURE_DEPENDS ${arg_GLOB})
  if(sources)
    set(scope PUBLIC)
    add_library(${target} STATIC ${sources})
    ridgeline_warnings(${target})
    target_link_libraries(${target} PRIVATE ${arg_PRIVATE_LINKS})
    target_compile_definitions(${target} PRIVATE ${arg_DEFINES})
    if(arg_COLD)
      ridgeline_cold(${target})
    endif()
    ridgeline_precompile(${target} ${arg_PRECOMPILE})
  else()
    set(scope INTERFACE)
    add_library(${target} INTERFACE)
  endif()
  add_library(ridgeline::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} ${scope} cxx_std_20)
  target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} ${scope} ${arg_LINKS})
  install(TARGETS ${target} EXPORT ridgeline-targets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
endfunction()

# Compiles the C++ of a target quickly instead of for speed.
function(ridgeline_cold target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

# Headers that most C++ sources of a target include, parsed once instead of once a source: half of the time of a source of
# ours is the parsing of headers. Sources include what they use all the same (-D CMAKE_DISABLE_PRECOMPILE_HEADERS=ON).
function(ridgeline_precompile target)
  foreach(header IN LISTS ARGN)
    if(header MATCHES "^<(.*)>$")
      set(header "<${CMAKE_MATCH_1}$<ANGLE-R>")
    else()
      set(header "${PROJECT_SOURCE_DIR}/${header}")
    endif()
    target_precompile_headers(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${header}>")
  endforeach()
endfunction()

# Settings of a library whatever its kind: what users of its headers must see as well.
function(ridgeline_public_definitions name)
  set(scope PUBLIC)
  get_target_property(type ridgeline_${name} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    set(scope INTERFACE)
  endif()
  target_compile_definitions(ridgeline_${name} ${scope} ${ARGN})
endfunction()

# For executables: what every program of this project needs.
function(ridgeline_program target)
  ridgeline_warnings(${target})
  # Where dist/ finds libridgeline_mpi.so when several ranks are started.
  if(TARGET ridgeline_mpi)
    add_dependencies(${target} ridgeline_mpi)
    set_target_properties(${target} PROPERTIES BUILD_RPATH $<TARGET_FILE_DIR:ridgeline_mpi>
                                               INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  endif()
  if(RIDGELINE_SANITIZE)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/sanitizer_defaults.cpp)
  endif()
endfunction()

# For targets with .cu files, or C++ files that include the runtime's headers.
function(ridgeline_cuda_flags target)
  target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  # fmt 9 turns constexpr off for nvcc, by halves in C++20, which does not compile. Diagnostic 20208
  # is about long double in fmt's constexpr functions, none of which a kernel calls.
  target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
  target_compile_options(
    ${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--extended-lambda;-diag-suppress=20208>")
  # Kernels for newer GPUs are empty where an older one is compiled for, and their helpers unused (177).
  if(NOT CMAKE_CUDA_ARCHITECTURES STREQUAL "90a-real")
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-diag-suppress=177>")
  endif()
endfunction()
