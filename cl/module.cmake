# The GPU backends' modules: this folder with one implementation of cl/driver.h each. crumb loads a module when it can,
# and links none of their APIs. They have copies of what they use of host/, since libcrumb.so exports its public interface
# only.

# The kernels' texts are part of a module: a row for each, in the order of their names. The text NAME.cl is that file, and
# behind it those of the folder NAME, where there is one, in the order of their names.
file(GLOB CRUMB_CL_KERNELS CONFIGURE_DEPENDS cl/kernels/*.cl cl/kernels/*/*.cl)
list(SORT CRUMB_CL_KERNELS)
set(CRUMB_CL_ROWS "")
foreach(kernel IN LISTS CRUMB_CL_KERNELS)
  file(RELATIVE_PATH file ${CMAKE_SOURCE_DIR}/cl/kernels ${kernel})
  if(file MATCHES "^(.*)/")
    if(NOT EXISTS ${CMAKE_SOURCE_DIR}/cl/kernels/${CMAKE_MATCH_1}.cl)
      message(FATAL_ERROR "cl/kernels/${file}: no text has it: there is no cl/kernels/${CMAKE_MATCH_1}.cl")
    endif()
    continue()
  endif()
  get_filename_component(symbol ${file} NAME_WE)
  file(GLOB behind RELATIVE ${CMAKE_SOURCE_DIR}/cl/kernels cl/kernels/${symbol}/*.cl)
  list(SORT behind)
  list(TRANSFORM behind REPLACE "(.+)" " CRUMB_CL_FILE(\"\\1\")")
  list(JOIN behind "" behind)
  string(APPEND CRUMB_CL_ROWS "CRUMB_CL_TEXT(crumb_cl_text_${symbol}, \"${file}\", CRUMB_CL_FILE(\"${file}\")${behind})\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/cl/texts.inc CONTENT "${CRUMB_CL_ROWS}")
set_source_files_properties(cl/text.c PROPERTIES COMPILE_OPTIONS "-Wa,-I${CMAKE_SOURCE_DIR}/cl/kernels"
                            OBJECT_DEPENDS "${CRUMB_CL_KERNELS}")
add_library(crumb_cl_texts OBJECT cl/text.c)
target_include_directories(crumb_cl_texts PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
target_link_libraries(crumb_cl_texts PRIVATE crumb_options)

set(CRUMB_GPU_BASE host/base/cache.c host/base/error.c host/base/file.c host/base/memory.c host/base/module.c
    host/base/process.c host/base/thread.c host/kernel/energy.c host/kernel/formats.c host/kernel/knob.c host/kernel/kv.c
    host/kernel/op.c host/kernel/rendezvous.c host/kernel/trial.c host/lowbit/blocks.c host/lowbit/index.c host/lowbit/tile.c
    host/lowbit/types.c)
file(GLOB CRUMB_GPU_SOURCES CONFIGURE_DEPENDS cl/*.c)
list(FILTER CRUMB_GPU_SOURCES EXCLUDE REGEX "/text\\.c$")

# crumb_gpu_module(NAME source...): libcrumb-NAME.so of these sources, and the target crumb_NAME_objects that they are in.
function(crumb_gpu_module name)
  add_library(crumb_${name}_objects OBJECT ${CRUMB_GPU_SOURCES} ${CRUMB_GPU_BASE} ${ARGN})
  target_compile_definitions(crumb_${name}_objects PRIVATE CRUMB_MODULE_VERSION="${PROJECT_VERSION}"
                             CRUMB_MODULE_BACKEND="${name}")
  target_link_libraries(crumb_${name}_objects PUBLIC crumb_options Threads::Threads m ${CMAKE_DL_LIBS})
  add_library(crumb_${name} MODULE)
  target_link_libraries(crumb_${name} PRIVATE crumb_${name}_objects crumb_cl_texts)
  target_link_options(crumb_${name} PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cl/module.map)
  set_property(TARGET crumb_${name} PROPERTY LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cl/module.map)
  set_target_properties(crumb_${name} PROPERTIES OUTPUT_NAME crumb-${name} LINKER_LANGUAGE C)
  install(TARGETS crumb_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/crumb)
endfunction()
