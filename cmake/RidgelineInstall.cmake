# `cmake --install`: libraries, headers, the CMake package and the tool.

include(CMakePackageConfigHelpers)

install(DIRECTORY ridgeline DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING
        PATTERN "*.h" PATTERN "*.cuh" PATTERN "cli" EXCLUDE)
if(TARGET ridgeline)
  install(TARGETS ridgeline RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ridgeline)
install(EXPORT ridgeline-targets NAMESPACE ridgeline:: DESTINATION ${package_dir})
configure_package_config_file(cmake/ridgeline-config.cmake.in ridgeline-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ridgeline-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ridgeline-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/ridgeline-config-version.cmake
        DESTINATION ${package_dir})
