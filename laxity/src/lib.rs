//! Laxity.
