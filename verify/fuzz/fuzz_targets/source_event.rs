#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::properties::source_event::check(data));
