//! The real `tierlab-server` process on a free port of loopback, over generated models and tables.

#[path = "../../../storage/tests/standin/mod.rs"]
mod standin;

#[path = "../attacks/mod.rs"]
mod attacks;

mod batching;
mod classes;
mod clients;
mod crowds;
mod decoding;
mod device;
mod faults;
mod flight;
mod gpu_check;
mod grpc;
mod harness;
mod hostile_requests;
mod imports;
mod inputs;
mod instances;
mod keyed;
mod layouts;
mod lifecycle;
mod malformed;
mod management;
mod models;
mod page;
mod pressure;
mod protocol;
mod repository;
mod routes;
mod runs;
mod safety;
mod storage;
mod streams;
mod telemetry;
