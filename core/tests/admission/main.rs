//! Admission from outside, against figures that were worked out by hand or by an independent model, and against itself.

mod more_channels;
mod properties;
mod random;
mod table_3;
mod workloads;
