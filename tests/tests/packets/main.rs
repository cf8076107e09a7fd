//! What becomes of a packet: through the loaded program by test run, and through the same code on the host with time as a number. No wire.

mod aggregation;
mod algorithms;
mod caps;
mod clients;
mod cpus;
mod destinations;
mod differential;
mod drops;
mod explanation;
mod express;
mod host_pipeline;
mod ideal;
mod leases;
mod object;
mod prefilter;
mod replay;
mod samples;
mod services;
mod succession;
mod syn_ack;
mod syn_threshold;
mod verdicts;
mod windows;
