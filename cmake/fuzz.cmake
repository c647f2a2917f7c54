# Fuzzing with libFuzzer (clang): `cmake --preset fuzz && cmake --build --preset fuzz`, then scripts/fuzz.sh.
#
# fuzz/NAME.cc becomes the program fuzz_NAME, which feeds one parser with any bytes; fuzz/seeds.cc the program fuzz_seeds,
# which writes the inputs to begin with. Only the rooms that hold parsers are built: of io and exec what they need.
add_library(fuzz_io STATIC $<TARGET_OBJECTS:plait_io>)
add_library(fuzz_rooms OBJECT plait/exec/program.cc plait/exec/buckets.cc)
target_link_libraries(fuzz_rooms PUBLIC plait_flags)

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/fuzz/*.cc)
set(fuzzers)
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(fuzz_${name} EXCLUDE_FROM_ALL ${source})
  foreach(room base tensor mesh placement graph ops models shard text)
    target_link_libraries(fuzz_${name} PRIVATE plait_${room})
  endforeach()
  target_link_libraries(fuzz_${name} PRIVATE fuzz_rooms fuzz_io ${PLAIT_LIBRARIES})
  if(NOT name STREQUAL seeds)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  endif()
  list(APPEND fuzzers fuzz_${name})
endforeach()
add_custom_target(fuzz DEPENDS ${fuzzers})
