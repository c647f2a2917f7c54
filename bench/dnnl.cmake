# oneDNN, the peer in bench_matmul: used when it is installed. Debian's CMake config of 2.6 names files that are not
# there, so header and library are looked up by hand. Include this after the benchmarks exist.
find_path(PLAIT_DNNL_INCLUDE dnnl.hpp)
find_library(PLAIT_DNNL_LIBRARY dnnl)
mark_as_advanced(PLAIT_DNNL_INCLUDE PLAIT_DNNL_LIBRARY)
if(PLAIT_DNNL_INCLUDE AND PLAIT_DNNL_LIBRARY AND TARGET bench_matmul)
  target_include_directories(bench_matmul SYSTEM PRIVATE ${PLAIT_DNNL_INCLUDE})
  target_link_libraries(bench_matmul PRIVATE ${PLAIT_DNNL_LIBRARY})
  target_compile_definitions(bench_matmul PRIVATE PLAIT_DNNL)
endif()
