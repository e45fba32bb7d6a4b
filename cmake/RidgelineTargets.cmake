# One target per folder. A folder links only the folders that its own list names, and those point
# down: cli -> engine -> {nn, data, dist, prof} -> plan -> ops -> core.

# Library `ridgeline_<name>` from the *.cpp of the current folder (RECURSE: below it too; GLOB: these
# patterns instead). LINKS are seen by users of the headers, PRIVATE_LINKS are not. COLD: code that
# runs a few times a second at most, so that it is compiled for size. PRECOMPILE: what most of its
# sources include. ALONE: its sources are never compiled in groups. A folder that holds only headers becomes an interface
# library.
function(ridgeline_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "RECURSE;COLD;ALONE" "" "GLOB;LINKS;PRIVATE_LINKS;DEFINES;PRECOMPILE")
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
    if(NOT arg_ALONE)
      ridgeline_unity(${target})
    endif()
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

# Compiles the C++ of a target for size: a third less code than at -O3, in four fifths of the time.
function(ridgeline_cold target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-Os>)
endfunction()

# Compiles the sources of these patterns at another level of optimization than the rest of their target. GCC crashes over
# a header that was precompiled for another level.
function(ridgeline_optimize level)
  file(GLOB sources CONFIGURE_DEPENDS ${ARGN})
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:${level}>
                                                    SKIP_PRECOMPILE_HEADERS ON)
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

# With RIDGELINE_UNITY, compiles the C++ sources of a target in groups of at most 250 kB, because most of the time of a
# small source goes into headers and templates that its neighbours need too. No two sources of a group define the same
# name at namespace scope, unless as overloads, so that a source means the same alone and in a group. Sources for several
# instruction sets include themselves and stay alone. Groups are too few for a precompiled header.
function(ridgeline_unity target)
  if(NOT RIDGELINE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  get_target_property(sources ${target} SOURCES)
  set(groups 0)
  foreach(source IN LISTS sources)
    cmake_path(IS_PREFIX PROJECT_SOURCE_DIR "${source}" ours)
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(NOT ours OR NOT source MATCHES "\\.cpp$" OR alone)
      continue()
    endif()
    file(STRINGS ${source} itself REGEX "hwy/foreach_target.h" LIMIT_COUNT 1)
    if(itself)
      continue()
    endif()
    ridgeline_defined_names(${source} names)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    file(SIZE ${source} bytes)
    set(group 0)
    while(group LESS groups)
      set(both ${names_${group}} ${names})
      list(LENGTH both total)
      list(REMOVE_DUPLICATES both)
      list(LENGTH both different)
      math(EXPR filled "${bytes_${group}} + ${bytes}")
      if(total EQUAL different AND options STREQUAL options_${group} AND filled LESS 250000)
        break()
      endif()
      math(EXPR group "${group} + 1")
    endwhile()
    if(group EQUAL groups)
      math(EXPR groups "${groups} + 1")
      set(options_${group} ${options})
      set(filled ${bytes})
    endif()
    set(bytes_${group} ${filled})
    list(APPEND names_${group} ${names})
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(APPEND includes_${group} "#include \"${source}\"\n")
    set_source_files_properties(${PROJECT_SOURCE_DIR}/${source} PROPERTIES HEADER_FILE_ONLY ON)
  endforeach()
  foreach(group RANGE ${groups})
    if(includes_${group})
      set(file ${CMAKE_CURRENT_BINARY_DIR}/${target}_${group}.cpp)
      file(CONFIGURE OUTPUT ${file} CONTENT "${includes_${group}}")
      target_sources(${target} PRIVATE ${file})
      if(options_${group})
        set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${options_${group}}")
      endif()
    endif()
  endforeach()
endfunction()

# The names that a source defines at namespace scope, as far as its lines without an indent show them: a function with its
# first parameter, unless it is a kernel's, which is passed by its name alone.
function(ridgeline_defined_names source result)
  file(STRINGS ${source} lines REGEX "^[A-Za-z_]")
  set(names "")
  foreach(line IN LISTS lines)
    if(line MATCHES "^(namespace |using namespace |template |public:|private:|[A-Z0-9_]+\\()")
      continue()
    endif()
    string(REGEX MATCHALL "k[A-Z][A-Za-z0-9_]*(\\[[A-Za-z0-9_]*\\])?( = |{)" constants "${line}")
    if(line MATCHES "^(struct|class|enum class|enum|using) ([A-Za-z0-9_]+)( |;|$)")
      list(APPEND names ${CMAKE_MATCH_2})
    elseif(constants)
      list(TRANSFORM constants REPLACE "[^A-Za-z0-9_].*" "")
      list(APPEND names ${constants})
    elseif(line MATCHES "^([^(=]*[ &*])?([A-Za-z0-9_]+)(\\(| = |{|;|\\[)")
      set(name ${CMAKE_MATCH_2})
      if(NOT name MATCHES "^(covers|prepare)" AND line MATCHES "^[^(]*\\(([^,()=]*[&*> ])")
        string(APPEND name " ${CMAKE_MATCH_1}")
      endif()
      list(APPEND names "${name}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(${result} ${names} PARENT_SCOPE)
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
