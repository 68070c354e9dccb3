# The GPU backends' modules: this folder with one implementation of cl/driver.h each. crumb loads a module when it can,
# and links none of their APIs. They have copies of what they use of host/, since libcrumb.so exports its public interface
# only.

# The kernels' text is part of a module: a row for each file, in the order of their names.
file(GLOB CRUMB_CL_KERNELS CONFIGURE_DEPENDS cl/kernels/*.cl)
list(SORT CRUMB_CL_KERNELS)
set(CRUMB_CL_ROWS "")
foreach(kernel IN LISTS CRUMB_CL_KERNELS)
  get_filename_component(file ${kernel} NAME)
  get_filename_component(symbol ${kernel} NAME_WE)
  string(APPEND CRUMB_CL_ROWS "CRUMB_CL_FILE(crumb_cl_text_${symbol}, \"${file}\")\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/cl/files.inc CONTENT "${CRUMB_CL_ROWS}")
set_source_files_properties(cl/text.c PROPERTIES COMPILE_OPTIONS "-Wa,-I${CMAKE_SOURCE_DIR}/cl/kernels"
                            OBJECT_DEPENDS "${CRUMB_CL_KERNELS}")

set(CRUMB_GPU_BASE host/base/cache.c host/base/error.c host/base/file.c host/base/memory.c host/base/module.c
    host/base/process.c host/base/thread.c host/kernel/energy.c host/kernel/knob.c host/kernel/kv.c host/kernel/op.c host/kernel/rendezvous.c host/kernel/trial.c host/lowbit/blocks.c host/lowbit/index.c host/lowbit/tile.c host/lowbit/types.c)
file(GLOB CRUMB_GPU_SOURCES CONFIGURE_DEPENDS cl/*.c)

# crumb_gpu_module(NAME source...): libcrumb-NAME.so of these sources, and the target crumb_NAME_objects that they are in.
function(crumb_gpu_module name)
  add_library(crumb_${name}_objects OBJECT ${CRUMB_GPU_SOURCES} ${CRUMB_GPU_BASE} ${ARGN})
  target_compile_definitions(crumb_${name}_objects PRIVATE CRUMB_MODULE_VERSION="${PROJECT_VERSION}"
                             CRUMB_MODULE_BACKEND="${name}")
  target_include_directories(crumb_${name}_objects PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
  target_link_libraries(crumb_${name}_objects PUBLIC crumb_options Threads::Threads m ${CMAKE_DL_LIBS})
  add_library(crumb_${name} MODULE)
  target_link_libraries(crumb_${name} PRIVATE crumb_${name}_objects)
  target_link_options(crumb_${name} PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cl/module.map)
  set_property(TARGET crumb_${name} PROPERTY LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cl/module.map)
  set_target_properties(crumb_${name} PROPERTIES OUTPUT_NAME crumb-${name} LINKER_LANGUAGE C)
  install(TARGETS crumb_${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/crumb)
endfunction()
