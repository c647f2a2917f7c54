# Programs that measure other people's libraries for the benchmarks to compare with. Built where the library is found;
# a benchmark looks for its peers beside itself and says when one is missing.
if(PLAIT_BENCH)
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    add_executable(peer_coll_mpi ${CMAKE_SOURCE_DIR}/bench/peers/coll_mpi.cc)
    target_compile_options(peer_coll_mpi PRIVATE -O2)
    target_link_libraries(peer_coll_mpi PRIVATE MPI::MPI_CXX)
    set_target_properties(peer_coll_mpi PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  else()
    message(STATUS "MPI not found: bench_comm will have no peer")
  endif()
endif()
