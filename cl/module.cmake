# libcrumb-cl.so and crumb-cl-survey, where OpenCL's headers and loader are. Nothing else links OpenCL: crumb loads the
# module when it can. Both have copies of what they use of host/, since libcrumb.so exports its public interface only.
pkg_check_modules(OPENCL IMPORTED_TARGET OpenCL)
if(NOT OPENCL_FOUND)
  message(STATUS "OpenCL is not there (Debian: ocl-icd-opencl-dev): building without the GPU backend")
  return()
endif()

# The kernels' text is part of the module: a row for each file, in the order of their names.
file(GLOB CRUMB_CL_KERNELS CONFIGURE_DEPENDS cl/kernels/*.cl)
list(SORT CRUMB_CL_KERNELS)
set(CRUMB_CL_ROWS "")
foreach(kernel IN LISTS CRUMB_CL_KERNELS)
  get_filename_component(file ${kernel} NAME)
  get_filename_component(symbol ${kernel} NAME_WE)
  string(APPEND CRUMB_CL_ROWS "CRUMB_CL_FILE(crumb_cl_text_${symbol}, \"${file}\")\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/cl/files.inc CONTENT "${CRUMB_CL_ROWS}")

set(CRUMB_CL_BASE host/base/cache.c host/base/error.c host/base/file.c host/base/memory.c host/base/module.c
    host/base/process.c host/base/thread.c host/kernel/knob.c host/kernel/op.c host/kernel/trial.c host/lowbit/index.c host/lowbit/tile.c host/lowbit/types.c)
file(GLOB CRUMB_CL_SOURCES CONFIGURE_DEPENDS cl/*.c)
list(FILTER CRUMB_CL_SOURCES EXCLUDE REGEX "/cl/survey\\.c$")

add_library(crumb_cl_objects OBJECT ${CRUMB_CL_SOURCES} ${CRUMB_CL_BASE})
target_compile_definitions(crumb_cl_objects PRIVATE CRUMB_CL_VERSION="${PROJECT_VERSION}")
target_include_directories(crumb_cl_objects PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
target_link_libraries(crumb_cl_objects PUBLIC crumb_options Threads::Threads m ${CMAKE_DL_LIBS} PkgConfig::OPENCL)
set_source_files_properties(cl/text.c PROPERTIES COMPILE_OPTIONS "-Wa,-I${CMAKE_SOURCE_DIR}/cl/kernels"
                            OBJECT_DEPENDS "${CRUMB_CL_KERNELS}")

add_library(crumb_cl MODULE)
target_link_libraries(crumb_cl PRIVATE crumb_cl_objects)
target_link_options(crumb_cl PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cl/module.map)
set_property(TARGET crumb_cl PROPERTY LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cl/module.map)
set_target_properties(crumb_cl PROPERTIES OUTPUT_NAME crumb-cl LINKER_LANGUAGE C)

add_executable(crumb_cl_survey tools/cl-survey/main.c cl/facts.c cl/survey.c)
target_link_libraries(crumb_cl_survey PRIVATE crumb_options PkgConfig::OPENCL)
set_target_properties(crumb_cl_survey PROPERTIES OUTPUT_NAME crumb-cl-survey)

install(TARGETS crumb_cl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/crumb)
install(TARGETS crumb_cl_survey RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/crumb)
