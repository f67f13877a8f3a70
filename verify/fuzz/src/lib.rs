//! The properties that the fuzz targets drive: those of the library's tests.

#[path = "../../../tests/properties/mod.rs"]
pub mod properties;
