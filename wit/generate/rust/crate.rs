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
//! A module is an interface of the contract. A call that takes time returns a `Pending` at once, and `wait()` blocks until its result is there:
//! start several, then wait for each. A resource (`queue::Queue`, `fused::Run`) is given back when it goes out of scope. A panic is written to the
//! function's log and ends the invocation.

#![allow(clippy::all, clippy::pedantic)]
