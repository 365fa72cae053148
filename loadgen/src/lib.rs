//! The load generator: a plan becomes a schedule, a schedule becomes requests, requests become percentiles that can
//! be trusted. Never links the server; what the two share is `tierlab-protocol`.
//!
//! The measuring half, in the order in which a step passes it:
//! - [`plan`]: TOML to a validated plan
//! - [`schedule`], [`keys`], [`payload`]: when requests are due, which entities they ask for, and their bodies
//! - [`pacer`]: releases requests at their due times, from a thread of its own; [`tickets`]: the line in which users wait for them
//! - [`driver`]: goose users, each with a connection and at most one request on it; [`grpc`]: the connections of those over gRPC
//! - [`reply`]: what a reply must look like, and how much of one is read
//! - [`workers`]: the same by several processes, each with its share of the schedule
//! - [`recorder`]: samples to one repeat of a point
//! - [`scrape`], [`gpu`], [`environment`]: what the server counted, and where the run was made
//! - [`runner`]: the order of the steps, interleaved over tiers; [`sweep`] and [`lab`]: the commands around it;
//!   [`resume`]: a run that stopped, gone on with; [`merge`]: runs of several hosts as one; [`search`]: which rates to measure for
//!   the highest under an objective
//! - [`trace`]: logs of requests become traces that plans replay
//! - [`control`], [`page_cache`], [`children`], [`interrupt`], [`progress`], [`live`]: servers, processes, Ctrl-C and the person watching
//! - [`redact`]: text without the credentials in it
//! - [`null_endpoint`], [`selfcheck`], [`coverage`]: the instrument and its statistics measured by themselves; [`certificate`]: kept for later runs
//!
//! The telling half: [`record`] is the data, [`analysis`] summarises it, [`pricing`] prices it, [`report`] shows it.

pub mod analysis;
pub mod certificate;
pub mod children;
pub mod cli;
pub mod control;
pub mod coverage;
pub mod driver;
pub mod environment;
pub mod error;
pub mod gpu;
pub mod grpc;
pub mod interrupt;
pub mod keys;
pub mod lab;
pub mod live;
pub mod merge;
pub mod null_endpoint;
pub mod pacer;
pub mod page_cache;
pub mod payload;
pub mod plan;
pub mod pricing;
pub mod progress;
pub mod record;
pub mod recorder;
pub mod redact;
pub mod reply;
pub mod report;
pub mod resume;
pub mod runner;
pub mod schedule;
pub mod scrape;
pub mod search;
pub mod selfcheck;
pub mod sweep;
pub mod tickets;
pub mod trace;
pub mod workers;
