//! The commands that measure, through the real binary.

#[path = "../agreement/mod.rs"]
mod agreement;

mod agents;
mod attribution;
mod certificate;
mod closed_loops;
mod disturbed;
mod foreign;
mod hostile;
mod journeys;
mod judge;
mod lab;
mod live;
mod load_processes;
mod mix;
mod nonsense;
mod odd;
mod program;
mod question;
mod replay;
mod scripted;
mod search;
mod sending;
mod site;
mod streams;
mod sweep;
