//! Tests of the library that start no gateway process, and of the files of this repository. They share one
//! executable because each executable links the whole library.

mod clients;
mod config;
mod docs;
mod sim;
mod supervision;
mod tidy;
mod transport;
