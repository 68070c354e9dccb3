# cmake --install: library, header <crumb.h>, command, manual page, completions, pkg-config and find_package files.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

target_include_directories(crumb_library INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/host>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(crumb_library PROPERTIES EXPORT_NAME crumb)
install(TARGETS crumb_library EXPORT crumbTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        PUBLIC_HEADER DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE NOTICE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/crumb)
install(EXPORT crumbTargets NAMESPACE crumb:: DESTINATION ${package_dir})
configure_package_config_file(tools/cmake/crumbConfig.cmake.in crumbConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(crumbConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/crumbConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/crumbConfigVersion.cmake
        DESTINATION ${package_dir})

# Paths relative to the .pc file, so that an installed tree can be moved or packed.
file(RELATIVE_PATH CRUMB_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" CRUMB_PC_PREFIX ${CRUMB_PC_PREFIX})
configure_file(tools/cmake/crumb.pc.in crumb.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/crumb.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET crumb)
  install(TARGETS crumb RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # The command prints its own manual page and completions from its option table.
  add_custom_command(OUTPUT crumb.1 crumb.bash _crumb
    COMMAND crumb help --man > crumb.1
    COMMAND crumb help --completion bash > crumb.bash
    COMMAND crumb help --completion zsh > _crumb
    DEPENDS crumb COMMENT "Writing manual page and completions" VERBATIM)
  add_custom_target(crumb_pages ALL DEPENDS crumb.1 crumb.bash _crumb)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/crumb.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/crumb.bash RENAME crumb
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/_crumb DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()
