//! The HTTP layer, as its clients see it: real events of each of Lambda's doors, through `lambda_http`, on real servers.

mod answers;
mod api;
mod conflicts;
mod keys;
mod requests;
mod silence;
