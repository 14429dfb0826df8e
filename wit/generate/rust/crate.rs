//! The calls of the platform, for inferlets in Rust.
//!
//! ```ignore
//! use pie::{session, Json};
//!
//! fn run(input: Json) -> Result<Json, Box<dyn std::error::Error>> {
//!     let name = input.get("name").as_str().unwrap_or("world");
//!     session::send(&session::Message::Text(format!("Hello, {name}!")))?;
//!     Ok(Json::Null)
//! }
//!
//! pie::inferlet!(run);
//! ```
//!
//! Each interface of the contract is a module. A call that takes time returns a `Pending` at once, and `wait()` blocks until the call has its
//! result: start several calls, then wait for each. A resource (`queue::Queue`, `fused::Run`) is released when it goes out of scope. A panic is
//! written to the function's log and ends the invocation.

#![allow(clippy::all, clippy::pedantic)]
