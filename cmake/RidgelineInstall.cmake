# `cmake --install`: component `tool` is the command with its manual page, shell completion and
# configs; component `dev` is the libraries, headers and the CMake package.

include(CMakePackageConfigHelpers)

if(TARGET ridgeline)
  install(TARGETS ridgeline RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
  # The tool describes itself: its manual page and completion are never out of date.
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/installed)
  file(MAKE_DIRECTORY ${generated})
  set(MAN_PAGE ${generated}/ridgeline.1)
  set(BASH_COMPLETION ${generated}/ridgeline)
  set(ZSH_COMPLETION ${generated}/_ridgeline)
  set(FISH_COMPLETION ${generated}/ridgeline.fish)
  foreach(pair "man>${MAN_PAGE}" "completion bash>${BASH_COMPLETION}"
               "completion zsh>${ZSH_COMPLETION}" "completion fish>${FISH_COMPLETION}")
    string(REGEX REPLACE ">.*" "" arguments "${pair}")
    string(REGEX REPLACE ".*>" "" file "${pair}")
    install(CODE "execute_process(COMMAND $<TARGET_FILE:ridgeline> ${arguments}
                                  OUTPUT_FILE \"${file}\" COMMAND_ERROR_IS_FATAL ANY)"
            COMPONENT tool)
  endforeach()
  set(data ${CMAKE_INSTALL_DATADIR})
  install(FILES ${MAN_PAGE} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tool)
  install(FILES ${BASH_COMPLETION} DESTINATION ${data}/bash-completion/completions COMPONENT tool)
  install(FILES ${ZSH_COMPLETION} DESTINATION ${data}/zsh/site-functions COMPONENT tool)
  install(FILES ${FISH_COMPLETION} DESTINATION ${data}/fish/vendor_completions.d COMPONENT tool)
  install(DIRECTORY configs DESTINATION ${data}/ridgeline COMPONENT tool)
  install(FILES README.md LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tool)
endif()

# The public headers; the others are nobody's but ours.
install(FILES ridgeline/ridgeline.h ridgeline/c_api.h ridgeline/custom_layer.h ridgeline/error.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ridgeline COMPONENT dev)
configure_file(cmake/ridgeline.pc.in ridgeline.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ridgeline.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ridgeline)
install(EXPORT ridgeline-targets NAMESPACE ridgeline:: DESTINATION ${package_dir} COMPONENT dev)
configure_package_config_file(cmake/ridgeline-config.cmake.in ridgeline-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ridgeline-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ridgeline-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/ridgeline-config-version.cmake
        DESTINATION ${package_dir} COMPONENT dev)

# `make package`: a .deb, and a .tar.gz that runs from wherever it is unpacked.
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};${PROJECT_NAME};tool;/")
set(CPACK_PACKAGE_CONTACT "the Ridgeline authors")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS libcurl4)  # `ridgeline data get` loads it
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)
include(CPack)
