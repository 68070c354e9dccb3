# libcrumb-cl.so and crumb-cl-survey, where OpenCL's headers and loader are.
pkg_check_modules(OPENCL IMPORTED_TARGET OpenCL)
if(NOT OPENCL_FOUND)
  message(STATUS "OpenCL is not there (Debian: ocl-icd-opencl-dev): building without that backend")
  return()
endif()

file(GLOB CRUMB_CL_SOURCES CONFIGURE_DEPENDS cl/opencl/*.c)
list(FILTER CRUMB_CL_SOURCES EXCLUDE REGEX "/survey\\.c$")
crumb_gpu_module(cl ${CRUMB_CL_SOURCES})
target_link_libraries(crumb_cl_objects PUBLIC PkgConfig::OPENCL)

add_executable(crumb_cl_survey tools/cl-survey/main.c cl/facts.c cl/sensors_text.c cl/opencl/api.c cl/opencl/sensors.c
               cl/opencl/survey.c host/base/error.c host/base/file.c host/kernel/energy.c)
target_link_libraries(crumb_cl_survey PRIVATE crumb_options PkgConfig::OPENCL)
set_target_properties(crumb_cl_survey PROPERTIES OUTPUT_NAME crumb-cl-survey)
install(TARGETS crumb_cl_survey RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/crumb)
