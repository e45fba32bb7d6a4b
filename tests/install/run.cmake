# Installs BUILD_DIR under WORK_DIR, then configures, builds and runs the consumer against it.

function(step)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed (${result}): ${command}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
step(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
step(${CMAKE_COMMAND} -S ${CONSUMER_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
     -D CMAKE_PREFIX_PATH=${WORK_DIR}/prefix -D CMAKE_CXX_COMPILER=${CXX}
     "-DCMAKE_CXX_FLAGS=${FLAGS}" -D EXAMPLES=${EXAMPLES})
step(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
step(${WORK_DIR}/build/consumer)
step(${WORK_DIR}/build/custom_layer)
if(EXISTS ${WORK_DIR}/prefix/bin/ridgeline)
  step(${WORK_DIR}/prefix/bin/ridgeline --help)
endif()
foreach(file man/man1/ridgeline.1 bash-completion/completions/ridgeline
             zsh/site-functions/_ridgeline fish/vendor_completions.d/ridgeline.fish
             ridgeline/configs/fashion-mlp.toml)
  if(EXISTS ${WORK_DIR}/prefix/bin/ridgeline AND NOT EXISTS ${WORK_DIR}/prefix/share/${file})
    message(FATAL_ERROR "share/${file} was not installed")
  endif()
endforeach()
