# What other projects link: attest::attest, one archive of all that attest/attest.hpp needs, and its package for
# find_package(attest), in the build folder and, by cmake --install BUILD --prefix PREFIX, where it is installed.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

file(GLOB library_sources CONFIGURE_DEPENDS cli/library/*.cpp)
add_library(attest_library STATIC ${library_sources})
set_target_properties(attest_library PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(attest_library PUBLIC attest_reports)
target_include_directories(attest_library PUBLIC ${CMAKE_SOURCE_DIR}/cli/library)
target_precompile_headers(attest_library REUSE_FROM attest_headers)
target_compile_options(attest_library PRIVATE -O1)

add_library(attest_archive STATIC $<TARGET_OBJECTS:attest_reference> $<TARGET_OBJECTS:attest_gpu_checks>
  $<TARGET_OBJECTS:attest_reports> $<TARGET_OBJECTS:attest_library>)
set_target_properties(attest_archive PROPERTIES OUTPUT_NAME attest EXPORT_NAME attest LINKER_LANGUAGE CXX)
target_compile_features(attest_archive INTERFACE cxx_std_20)
target_include_directories(attest_archive INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/cli/library>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(attest_archive INTERFACE fmt::fmt Threads::Threads ${CMAKE_DL_LIBS} mpfi mpfr gmp)
set(attest_needs_cuda OFF)
if(CMAKE_CUDA_COMPILER)
  set(attest_needs_cuda ON)
  find_package(CUDAToolkit REQUIRED)
  target_link_libraries(attest_archive INTERFACE CUDA::cudart_static)
endif()
if(ATTEST_SANITIZE)
  target_link_options(attest_archive INTERFACE -fsanitize=${ATTEST_SANITIZE})
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/attest)
configure_package_config_file(cli/library/attestConfig.cmake.in ${CMAKE_BINARY_DIR}/attestConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/attestConfigVersion.cmake COMPATIBILITY SameMinorVersion)
export(TARGETS attest_archive NAMESPACE attest:: FILE ${CMAKE_BINARY_DIR}/attestTargets.cmake)

install(TARGETS attest_archive EXPORT attestTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT attestTargets NAMESPACE attest:: DESTINATION ${package_folder})
install(FILES ${CMAKE_BINARY_DIR}/attestConfig.cmake ${CMAKE_BINARY_DIR}/attestConfigVersion.cmake
  DESTINATION ${package_folder})
install(TARGETS attest RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES cli/library/attest/attest.hpp cli/library/attest/rapidcheck.hpp gpu_checks/adapters/attest_kernel.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attest)
install(FILES gpu_checks/adapters/attest_adapter.py gpu_checks/adapters/PROTOCOL.md
  DESTINATION ${CMAKE_INSTALL_DATADIR}/attest)
