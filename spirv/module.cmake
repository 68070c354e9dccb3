# libcrumb-ze.so and crumb-ze-survey, where Level Zero's headers are. Nothing links its loader, which both load when they
# run. The module is cl/ with this folder in the place of cl/opencl.
# With CRUMB_TESTS also those that tests/support/deps.py has fetched: the group level-zero.
set(fetched "")
if(CRUMB_TESTS)
  file(GLOB fetched $ENV{XDG_CACHE_HOME}/crumb/prefix-level-zero-*/usr/include
       $ENV{HOME}/.cache/crumb/prefix-level-zero-*/usr/include)
endif()
find_path(CRUMB_LEVEL_ZERO_HEADERS level_zero/ze_api.h HINTS ${fetched})
if(NOT CRUMB_LEVEL_ZERO_HEADERS)
  message(STATUS "Level Zero's headers are not there (Debian: libze-dev): building without that backend")
  return()
endif()

file(GLOB CRUMB_ZE_SOURCES CONFIGURE_DEPENDS spirv/*.c)
list(FILTER CRUMB_ZE_SOURCES EXCLUDE REGEX "/survey\\.c$")
crumb_gpu_module(ze ${CRUMB_ZE_SOURCES})
target_include_directories(crumb_ze_objects SYSTEM PRIVATE ${CRUMB_LEVEL_ZERO_HEADERS})

add_executable(crumb_ze_survey tools/cl-survey/main.c cl/facts.c cl/sensors_text.c spirv/api.c spirv/loader.c spirv/ocloc.c
               spirv/survey.c spirv/sysman.c host/base/error.c host/base/file.c host/base/module.c host/kernel/energy.c)
target_include_directories(crumb_ze_survey SYSTEM PRIVATE ${CRUMB_LEVEL_ZERO_HEADERS})
target_link_libraries(crumb_ze_survey PRIVATE crumb_options ${CMAKE_DL_LIBS})
set_target_properties(crumb_ze_survey PROPERTIES OUTPUT_NAME crumb-ze-survey)
install(TARGETS crumb_ze_survey RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/crumb)

# Programs that are compiled now, where Intel's offline compiler is: an archive beside the module. Others the driver compiles
# when they are first used.
add_executable(crumb_ze_archiver tools/ze-archive/main.c spirv/ocloc.c host/base/cache.c
               host/base/error.c host/base/file.c host/base/memory.c host/base/module.c)
target_include_directories(crumb_ze_archiver SYSTEM PRIVATE ${CRUMB_LEVEL_ZERO_HEADERS})
target_link_libraries(crumb_ze_archiver PRIVATE crumb_cl_texts crumb_options ${CMAKE_DL_LIBS})
set_target_properties(crumb_ze_archiver PROPERTIES OUTPUT_NAME ze-archive)
find_library(CRUMB_OCLOC NAMES ocloc libocloc.so.1)
if(CRUMB_OCLOC)
  set(archive ${CMAKE_CURRENT_BINARY_DIR}/crumb-ze-modules.bin)
  add_custom_command(OUTPUT ${archive} COMMAND crumb_ze_archiver ${CMAKE_SOURCE_DIR}/spirv/programs.txt ${archive}
                     DEPENDS crumb_ze_archiver spirv/programs.txt ${CRUMB_CL_KERNELS} VERBATIM)
  add_custom_target(crumb_ze_archive ALL DEPENDS ${archive})
  install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR}/crumb)
else()
  message(STATUS "Intel's offline compiler is not there (Debian: intel-ocloc): no kernels are compiled now")
endif()
