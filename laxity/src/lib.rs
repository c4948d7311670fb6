//! Laxity.
pub mod platform_file;
pub mod text;
