// Generated from wit/*.wit by `npm run generate`. Do not edit: a test compares this file with its source.
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

pub use abi::Pending;

/// Makes a function the inferlet's program. The function takes the input as `Json` or as text (`String`). It returns the output (`Json`, or JSON
/// text), or an error of any type with `to_string`.
#[macro_export]
macro_rules! inferlet {
    ($program:path) => {
        #[export_name = "run"]
        pub unsafe extern "C" fn pie_run(text: *mut u8, length: usize) -> *const u8 {
            $crate::abi::run(text, length, $program)
        }
        #[export_name = "cabi_realloc"]
        pub unsafe extern "C" fn pie_reallocate(old: *mut u8, old_size: usize, align: usize, size: usize) -> *mut u8 {
            $crate::abi::reallocate(old, old_size, align, size)
        }
    };
}

/// Sends a piece of text to the client. Waits while the client is behind.
pub fn send(text: impl Into<String>) -> Result<(), types::Error> {
    let message = session::Message::Text(text.into());
    match session::send(&message) {
        Err(types::Error::LimitExceeded(_)) => {
            session::flush().wait()?;
            session::send(&message)
        }
        sent => sent,
    }
}

impl std::fmt::Display for types::Error {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(self.message())
    }
}

impl std::error::Error for types::Error {}

/// A JSON value. Numbers are `f64`, as in JavaScript: integers are exact up to 2^53.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    /// Members, in the order of the text.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses a text. Values may be nested 128 deep.
    pub fn parse(text: &str) -> Result<Json, String> {
        let mut parser = Parser { text, at: 0 };
        let value = parser.value(128)?;
        parser.space();
        if parser.at == text.len() { Ok(value) } else { Err(parser.wrong()) }
    }

    /// A member of an object; `Null` when it is absent. Of several members with this name, the last one counts, as in JavaScript: the platform
    /// has checked the last one against the function's schema.
    pub fn get(&self, name: &str) -> &Json {
        match self {
            Json::Object(members) => members.iter().rev().find(|(key, _)| key == name).map_or(&Json::Null, |(_, value)| value),
            _ => &Json::Null,
        }
    }
    pub fn as_str(&self) -> Option<&str> {
        if let Json::Text(text) = self { Some(text) } else { None }
    }
    pub fn as_f64(&self) -> Option<f64> {
        if let Json::Number(number) = self { Some(*number) } else { None }
    }
    /// The number without its fraction, limited to the range 0 to 4294967295.
    pub fn as_u32(&self) -> Option<u32> {
        self.as_f64().map(|number| number as u32)
    }
    pub fn as_bool(&self) -> Option<bool> {
        if let Json::Bool(value) = self { Some(*value) } else { None }
    }
    pub fn as_list(&self) -> Option<&[Json]> {
        if let Json::List(items) = self { Some(items) } else { None }
    }
    pub fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
        Json::Object(members.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
    }
}

macro_rules! json_from {
    ($($type:ty, $value:pat => $json:expr;)*) => {$(
        impl From<$type> for Json {
            fn from($value: $type) -> Json {
                $json
            }
        }
    )*};
}
json_from! {
    bool, value => Json::Bool(value);
    u32, value => Json::Number(value as f64);
    f64, value => Json::Number(value);
    &str, value => Json::Text(value.to_string());
    String, value => Json::Text(value);
}
impl<T: Into<Json>> From<Vec<T>> for Json {
    fn from(items: Vec<T>) -> Json {
        Json::List(items.into_iter().map(Into::into).collect())
    }
}

impl abi::Input for Json {
    fn parse(text: String) -> Result<Self, String> {
        Json::parse(&text)
    }
}

impl std::fmt::Display for Json {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::fmt::Write;
        match self {
            Json::Null => to.write_str("null"),
            Json::Bool(value) => write!(to, "{value}"),
            Json::Number(number) if number.is_finite() => write!(to, "{number}"),
            Json::Number(_) => to.write_str("null"),
            Json::Text(text) => write_text(text, to),
            Json::List(items) => {
                to.write_char('[')?;
                for (index, item) in items.iter().enumerate() {
                    write!(to, "{}{item}", if index > 0 { "," } else { "" })?;
                }
                to.write_char(']')
            }
            Json::Object(members) => {
                to.write_char('{')?;
                for (index, (name, value)) in members.iter().enumerate() {
                    to.write_str(if index > 0 { "," } else { "" })?;
                    write_text(name, to)?;
                    write!(to, ":{value}")?;
                }
                to.write_char('}')
            }
        }
    }
}

fn write_text(text: &str, to: &mut impl std::fmt::Write) -> std::fmt::Result {
    to.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' => to.write_str("\\\"")?,
            '\\' => to.write_str("\\\\")?,
            '\n' => to.write_str("\\n")?,
            '\0'..='\x1f' => write!(to, "\\u{:04x}", character as u32)?,
            _ => to.write_char(character)?,
        }
    }
    to.write_char('"')
}

/// True for a number as JSON writes it. Rust's `parse` also takes other forms, such as `.5`, `1.` and `01`.
fn is_number(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(first, rest)| (first, Some(rest)));
    let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(first, rest)| (first, Some(rest)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.map_or(true, digits)
        && exponent.map_or(true, |part| digits(part.strip_prefix(['+', '-']).unwrap_or(part)))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn wrong(&self) -> String {
        format!("The text is not JSON at byte {}.", self.at)
    }
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }
    fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }
    fn take(&mut self, token: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(token.as_bytes());
        if found {
            self.at += token.len();
        }
        found
    }
    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(self.wrong()) }
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        self.space();
        match self.peek() {
            _ if depth == 0 => Err(self.wrong()),
            b'{' => self.members("}", |parser| {
                parser.space();
                let name = parser.string()?;
                parser.space();
                parser.expect(":")?;
                Ok((name, parser.value(depth - 1)?))
            }).map(Json::Object),
            b'[' => self.members("]", |parser| parser.value(depth - 1)).map(Json::List),
            b'"' => self.string().map(Json::Text),
            b't' => self.expect("true").map(|_| Json::Bool(true)),
            b'f' => self.expect("false").map(|_| Json::Bool(false)),
            b'n' => self.expect("null").map(|_| Json::Null),
            _ => {
                let rest = &self.text.as_bytes()[self.at..];
                let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
                let text = &self.text[self.at..self.at + length];
                if !is_number(text) {
                    return Err(self.wrong());
                }
                let number = text.parse().map_err(|_| self.wrong())?;
                self.at += length;
                Ok(Json::Number(number))
            }
        }
    }

    fn members<T>(&mut self, end: &str, mut item: impl FnMut(&mut Self) -> Result<T, String>) -> Result<Vec<T>, String> {
        let mut items = Vec::new();
        self.at += 1;
        self.space();
        if self.take(end) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            self.space();
            if self.take(end) {
                return Ok(items);
            }
            self.expect(",")?;
        }
    }

    fn string(&mut self) -> Result<String, String> {
        self.expect("\"")?;
        let mut said = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(|c: char| c == '"' || c == '\\' || c < ' ').ok_or_else(|| self.wrong())?;
            said.push_str(&rest[..plain]);
            self.at += plain;
            if self.take("\"") {
                return Ok(said);
            }
            self.expect("\\")?;
            said.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let letter = self.peek();
        self.at += 1;
        Ok(match letter {
            b'"' | b'\\' | b'/' => letter as char,
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\x08',
            b'f' => '\x0c',
            b'u' => {
                let first = self.hex()?;
                let is_pair = (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u");
                let at = self.at;
                if is_pair {
                    self.at += 2;
                    let second = self.hex()?;
                    if (0xdc00..0xe000).contains(&second) {
                        let point = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                        return Ok(char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    self.at = at;
                }
                char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => {
                self.at -= 1;
                return Err(self.wrong());
            }
        })
    }

    fn hex(&mut self) -> Result<u32, String> {
        let digits = self.text.get(self.at..self.at + 4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let value = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).ok_or_else(|| self.wrong())?;
        self.at += 4;
        Ok(value)
    }
}

/// Types that every interface shares. An inferlet may have 1,024 calls to stores, messages, files, children and the network in progress. The
/// arguments of these calls may hold 32 MiB. Their unread results, and unread vectors and scores, may hold another 32 MiB. A further call fails
/// with `limit-exceeded` until the inferlet reads or drops some results.
pub mod types {
    use crate::abi;

    /// Reason of a failed call. The text says what happened and what to do. Programs match on the case.
    #[derive(Debug, Clone, PartialEq)]
    pub enum Error {
        /// An argument has a wrong shape or value: lists of unequal lengths, a token id outside the vocabulary, a slot past the end of a page.
        InvalidArgument(String),
        /// The inferlet does not hold this address: the inferlet never allocated the address or has freed it, or the address belongs to another model.
        NotOwned(String),
        /// The model, the host or the function's grants do not offer this call. Check `runtime.model-traits` first, or add the grant to the manifest.
        Unsupported(String),
        /// No model, name or invocation matches.
        NotFound(String),
        /// The call would exceed a limit of the deployment or the tenant (pages, tokens, output, memory).
        LimitExceeded(String),
        /// The context would exceed the model's trained length, or the out-pages have no empty slot left.
        ContextOverflow(String),
        /// An earlier call on which this call depends has failed. The text names the cause.
        DependencyFailed(String),
        /// The client or the parent cancelled the invocation.
        Cancelled(String),
        /// The deadline of the invocation has passed.
        DeadlineExceeded(String),
        /// The platform reclaimed the inferlet's memory (first-come-first-served termination).
        Terminated(String),
        /// The resource is not available now but may be later: another inferlet holds it (a lock, memory, a busy worker), or the device or its
        /// process is gone together with everything that it held.
        Unavailable(String),
        /// The other end of the session has closed it.
        Closed(String),
        /// The platform itself has a fault.
        Internal(String),
    }

    impl abi::Shape for Error { const SIZE: usize = 12; const ALIGN: usize = 4; const FLAT: usize = 3; }

    impl abi::Lift for Error {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            match *(at as *const u8) {
                0 => Self::InvalidArgument(abi::Lift::lift(at.add(4))),
                1 => Self::NotOwned(abi::Lift::lift(at.add(4))),
                2 => Self::Unsupported(abi::Lift::lift(at.add(4))),
                3 => Self::NotFound(abi::Lift::lift(at.add(4))),
                4 => Self::LimitExceeded(abi::Lift::lift(at.add(4))),
                5 => Self::ContextOverflow(abi::Lift::lift(at.add(4))),
                6 => Self::DependencyFailed(abi::Lift::lift(at.add(4))),
                7 => Self::Cancelled(abi::Lift::lift(at.add(4))),
                8 => Self::DeadlineExceeded(abi::Lift::lift(at.add(4))),
                9 => Self::Terminated(abi::Lift::lift(at.add(4))),
                10 => Self::Unavailable(abi::Lift::lift(at.add(4))),
                11 => Self::Closed(abi::Lift::lift(at.add(4))),
                12 => Self::Internal(abi::Lift::lift(at.add(4))),
                _ => abi::wrong_tag(),
            }
        }
    }

    impl Error {
        /// The text, whatever the case.
        pub fn message(&self) -> &str {
            match self {
                Self::InvalidArgument(message) | Self::NotOwned(message) | Self::Unsupported(message) | Self::NotFound(message) | Self::LimitExceeded(message) | Self::ContextOverflow(message) | Self::DependencyFailed(message) | Self::Cancelled(message) | Self::DeadlineExceeded(message) | Self::Terminated(message) | Self::Unavailable(message) | Self::Closed(message) | Self::Internal(message) => message,
            }
        }
    }
}

/// Information about the inferlet and the platform. Every call except `sleep` returns at once, most after about a microsecond.
pub mod runtime {
    use crate::abi;

    #[derive(Debug, Clone, PartialEq, Copy, Eq)]
    pub enum LogLevel {
        Debug,
        Info,
        Warn,
        Error,
    }

    impl abi::Shape for LogLevel { const SIZE: usize = 1; const ALIGN: usize = 1; const FLAT: usize = 1; }

    impl abi::Lower for LogLevel {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            let _ = kept;
            *(at as *mut u8) = *self as u8;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(*self as u64);
        }
    }

    /// A model that the function was granted, and so may use.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct ModelInfo {
        pub name: String,
        /// Trained context length, in tokens.
        pub context_length: u32,
        pub vocabulary_size: u32,
        /// Number of tokens that fit in a KV page.
        pub page_size: u32,
        /// Names of the interfaces that the model offers, such as `forward` or `fused`.
        pub traits: Vec<String>,
    }

    impl abi::Shape for ModelInfo { const SIZE: usize = 28; const ALIGN: usize = 4; const FLAT: usize = 7; }

    impl abi::Lift for ModelInfo {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                name: abi::Lift::lift(at.add(0)),
                context_length: abi::Lift::lift(at.add(8)),
                vocabulary_size: abi::Lift::lift(at.add(12)),
                page_size: abi::Lift::lift(at.add(16)),
                traits: abi::Lift::lift(at.add(20)),
            }
        }
    }

    /// Facts about a model, from its configuration.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct ModelMetadata {
        /// Name from the configuration, such as `LlamaForCausalLM`.
        pub architecture: String,
        /// Number of weights, including embeddings.
        pub parameters: u64,
        pub layers: u32,
        pub hidden_size: u32,
        pub attention_heads: u32,
        pub key_value_heads: u32,
        pub head_size: u32,
        /// Bits of a weight in the device's memory.
        pub bits: u32,
    }

    impl abi::Shape for ModelMetadata { const SIZE: usize = 40; const ALIGN: usize = 8; const FLAT: usize = 9; }

    impl abi::Lift for ModelMetadata {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                architecture: abi::Lift::lift(at.add(0)),
                parameters: abi::Lift::lift(at.add(8)),
                layers: abi::Lift::lift(at.add(16)),
                hidden_size: abi::Lift::lift(at.add(20)),
                attention_heads: abi::Lift::lift(at.add(24)),
                key_value_heads: abi::Lift::lift(at.add(28)),
                head_size: abi::Lift::lift(at.add(32)),
                bits: abi::Lift::lift(at.add(36)),
            }
        }
    }

    /// The version of this contract that the host implements, such as `0.1.0`.
    #[must_use]
    #[inline]
    pub fn version() -> String {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "version"]
            fn call(result: *mut u8);
        }
        let mut result = abi::Area::new();
        unsafe { call(result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// The id of this invocation, as the client sees it.
    #[must_use]
    #[inline]
    pub fn instance_id() -> String {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "instance-id"]
            fn call(result: *mut u8);
        }
        let mut result = abi::Area::new();
        unsafe { call(result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    #[must_use]
    #[inline]
    pub fn tenant() -> String {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "tenant"]
            fn call(result: *mut u8);
        }
        let mut result = abi::Area::new();
        unsafe { call(result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// The input of this invocation, which `run` has also received as its argument.
    #[must_use]
    #[inline]
    pub fn get_arguments() -> String {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "get-arguments"]
            fn call(result: *mut u8);
        }
        let mut result = abi::Area::new();
        unsafe { call(result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    #[must_use]
    #[inline]
    pub fn function_name() -> String {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "function-name"]
            fn call(result: *mut u8);
        }
        let mut result = abi::Area::new();
        unsafe { call(result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    #[must_use]
    #[inline]
    pub fn function_version() -> String {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "function-version"]
            fn call(result: *mut u8);
        }
        let mut result = abi::Area::new();
        unsafe { call(result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// The models that the function may use. The first one is the default model.
    #[must_use]
    #[inline]
    pub fn models() -> Vec<crate::runtime::ModelInfo> {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "models"]
            fn call(result: *mut u8);
        }
        let mut result = abi::Area::new();
        unsafe { call(result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// The interfaces that a model offers.
    #[inline]
    pub fn model_traits(model: &str) -> Result<Vec<String>, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "model-traits"]
            fn call(a0: i32, a1: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&model, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// Facts about a model. Fails with `not-found` for a model that the function was not granted.
    #[inline]
    pub fn metadata(model: &str) -> Result<crate::runtime::ModelMetadata, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "metadata"]
            fn call(a0: i32, a1: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&model, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// For a model, the maximum efficient size of a device step, in tokens: up to this size, more tokens in a step take little more time. For an
    /// encoder, the maximum number of tokens in the next batch. The GPU host measures these numbers while it computes, so they change. Returns none
    /// before the first measurement. Fails with `not-found` for a model or encoder that the function was not granted. Takes a round trip to the
    /// runtime.
    #[inline]
    pub fn efficient_tokens(model: &str) -> Result<Option<u32>, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "efficient-tokens"]
            fn call(a0: i32, a1: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&model, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// The state of this inferlet as JSON text, for debugging. `query` chooses the part: `limits`, `usage` (CPU, tokens, calls), `pages` (held pages by
    /// model), `room` (by model, the tokens that this inferlet can hold at once: its context, or fewer with the reason), `grants`, `models` or `all`. Fails with `invalid-argument` for another query.
    #[inline]
    pub fn debug_query(query: &str) -> Result<String, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "debug-query"]
            fn call(a0: i32, a1: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&query, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// Writes a line to the function's log and to the invocation's event stream.
    #[inline]
    pub fn log(level: crate::runtime::LogLevel, message: &str) {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "log"]
            fn call(a0: i32, a1: i32, a2: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&level, &mut arguments);
        abi::Lower::flat(&message, &mut arguments);
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2)) }
    }

    /// Records a span: a part of the inferlet's work, such as a node of a workflow. The span becomes a bar on the dashboard's page of the invocation,
    /// and an entry of the invocation's event `metric`. `began` and `ended` are times as `now` returns them. A time before this run is moved to the
    /// beginning of the run, a time after this call to the moment of the call, and an `ended` before `began` to `began`. The platform keeps 64 spans,
    /// failed spans first and then the longest ones, and only counts the others. It shortens names to 80 characters and kinds to 32 characters.
    #[inline]
    pub fn record_span(name: &str, kind: &str, began: u64, ended: u64, failed: bool) {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "record-span"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i64, a5: i64, a6: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&name, &mut arguments);
        abi::Lower::flat(&kind, &mut arguments);
        abi::Lower::flat(&began, &mut arguments);
        abi::Lower::flat(&ended, &mut arguments);
        abi::Lower::flat(&failed, &mut arguments);
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i64(4), arguments.i64(5), arguments.i32(6)) }
    }

    /// True when the client, the parent invocation or the platform has asked this inferlet to stop.
    #[must_use]
    #[inline]
    pub fn is_cancelled() -> bool {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "is-cancelled"]
            fn call() -> i32;
        }
        unsafe { call() != 0 }
    }

    /// Wall time until this run must end, in milliseconds. The run ends at its own time limit or at the invocation's deadline, whichever comes first.
    /// The time limit does not count the time in which the platform has preempted the inferlet and holds its calls. A preempted run may therefore
    /// take up to twice its time limit. The invocation's deadline counts all time.
    #[must_use]
    #[inline]
    pub fn time_left() -> u64 {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "time-left"]
            fn call() -> i64;
        }
        unsafe { call() as u64 }
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    #[inline]
    pub fn now() -> u64 {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "now"]
            fn call() -> i64;
        }
        unsafe { call() as u64 }
    }

    /// 32 random bits from the host's random number generator.
    #[must_use]
    #[inline]
    pub fn random() -> u32 {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "random"]
            fn call() -> i32;
        }
        unsafe { call() as u32 }
    }

    /// Completes after the given time. Fails with `cancelled` or `deadline-exceeded` if the run must stop earlier.
    #[inline]
    pub fn sleep(milliseconds: u32) -> crate::Pending<Result<(), crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/runtime@0.1.0")]
        extern "C" {
            #[link_name = "sleep"]
            fn call(a0: i32) -> i32;
            #[link_name = "[future-read-0]sleep"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]sleep"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&milliseconds, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
    }
}

/// The conversation with the client that invoked this inferlet. Sending costs some microseconds, and `flush` a round trip to the event log,
/// about a millisecond.
pub mod session {
    use crate::abi;

    #[derive(Debug, Clone, PartialEq)]
    pub enum Message {
        Text(String),
        Bytes(Vec<u8>),
    }

    impl abi::Shape for Message { const SIZE: usize = 12; const ALIGN: usize = 4; const FLAT: usize = 3; }

    impl abi::Lift for Message {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            match *(at as *const u8) {
                0 => Self::Text(abi::Lift::lift(at.add(4))),
                1 => Self::Bytes(abi::Lift::lift(at.add(4))),
                _ => abi::wrong_tag(),
            }
        }
    }

    impl abi::Lower for Message {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            match self {
                Self::Text(value) => { *(at as *mut u8) = 0; abi::Lower::lower(value, at.add(4), kept) }
                Self::Bytes(value) => { *(at as *mut u8) = 1; abi::Lower::lower(value, at.add(4), kept) }
            }
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            let end = to.count() + <Self as abi::Shape>::FLAT;
            match self {
                Self::Text(value) => { to.push(0); abi::Lower::flat(value, to) }
                Self::Bytes(value) => { to.push(1); abi::Lower::flat(value, to) }
            }
            to.pad(end);
        }
    }

    /// Queues one `message` event and returns at once. `limit-exceeded` when 1 MiB of events waits to be written (each event counts 256 bytes more
    /// than its content): await `flush` and send again.
    #[inline]
    pub fn send(message: &crate::session::Message) -> Result<(), crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/session@0.1.0")]
        extern "C" {
            #[link_name = "send"]
            fn call(a0: i32, a1: i32, a2: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&message, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// Completes when all messages sent so far are in the invocation's event log.
    #[inline]
    pub fn flush() -> crate::Pending<Result<(), crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/session@0.1.0")]
        extern "C" {
            #[link_name = "flush"]
            fn call() -> i32;
            #[link_name = "[future-read-0]flush"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]flush"]
            fn forget(future: i32);
        }
        unsafe { abi::Pending::new(call(), read, forget) }
    }

    /// The next message of the client, in order. `closed` once the client can send no more messages.
    #[inline]
    pub fn receive() -> crate::Pending<Result<crate::session::Message, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/session@0.1.0")]
        extern "C" {
            #[link_name = "receive"]
            fn call() -> i32;
            #[link_name = "[future-read-0]receive"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]receive"]
            fn forget(future: i32);
        }
        unsafe { abi::Pending::new(call(), read, forget) }
    }
}

/// An order of calls on one model. The inferlet issues calls without waiting, and they run in the order of their queue. Calls of different
/// queues have no order. When a call fails, all later calls of the queue that depend on it fail with its cause, and `synchronize` reports the
/// first error. Issuing a call costs some microseconds. Waiting for a call costs its computation and a round trip to the GPU host, about 0.1 ms.
pub mod queue {
    use crate::abi;

    #[derive(Debug)]
    pub struct Queue(i32);

    impl Queue {
        /// Creates a queue for the pages and embeds of `model`. With an unknown model, every call on the queue fails with `not-found`.
        #[inline]
        pub fn new(model: &str) -> Self {
            #[link(wasm_import_module = "pie:inferlet/queue@0.1.0")]
            extern "C" {
                #[link_name = "[constructor]queue"]
                fn call(a0: i32, a1: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&model, &mut arguments);
            unsafe { crate::queue::Queue::from_handle(call(arguments.i32(0), arguments.i32(1))) }
        }

        /// Sets the priority, 0 by default. Calls with a higher priority go first within a batch. The host limits the priority to the tenant's range.
        #[inline]
        pub fn set_priority(&self, priority: i32) {
            #[link(wasm_import_module = "pie:inferlet/queue@0.1.0")]
            extern "C" {
                #[link_name = "[method]queue.set-priority"]
                fn call(a0: i32, a1: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&priority, &mut arguments);
            unsafe { call(arguments.i32(0), arguments.i32(1)) }
        }

        /// Marks the queue's later calls as calls of a node of a workflow: `depth` is the length of the longest path from the node to the workflow's end.
        /// Of a tenant's marked calls, those of earlier invocations go first, and within an invocation those with the largest depth. Marked calls only
        /// exchange turns with each other: no other call goes earlier or later because of a depth. Depths work at every priority, 0 included. Calls of
        /// `embed` and `rerank` also go in the order of invocations once the invocation has set a depth.
        #[inline]
        pub fn set_depth(&self, depth: u32) {
            #[link(wasm_import_module = "pie:inferlet/queue@0.1.0")]
            extern "C" {
                #[link_name = "[method]queue.set-depth"]
                fn call(a0: i32, a1: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&depth, &mut arguments);
            unsafe { call(arguments.i32(0), arguments.i32(1)) }
        }

        /// Ends the queue's computation: calls that the device has not begun fail with `cancelled`, and so do later ones. If the device computes a
        /// prompt in parts, it finishes only the current part. Pages and embeds can still be allocated and freed.
        #[inline]
        pub fn stop(&self) {
            #[link(wasm_import_module = "pie:inferlet/queue@0.1.0")]
            extern "C" {
                #[link_name = "[method]queue.stop"]
                fn call(a0: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { call(arguments.i32(0)) }
        }

        /// Completes after all earlier calls of the queue. Fails with the first error since the last `synchronize`. Calls that take the name
        /// of an export or file report their errors themselves, so `synchronize` leaves these errors out, except those of `export-pages` and `save`.
        #[inline]
        pub fn synchronize(&self) -> crate::Pending<Result<(), crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/queue@0.1.0")]
            extern "C" {
                #[link_name = "[method]queue.synchronize"]
                fn call(a0: i32) -> i32;
                #[link_name = "[future-read-0][method]queue.synchronize"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]queue.synchronize"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
        }

        pub(crate) fn from_handle(handle: i32) -> Self {
            Self(handle)
        }
    }

    impl Drop for Queue {
        #[inline]
        fn drop(&mut self) {
            #[link(wasm_import_module = "pie:inferlet/queue@0.1.0")]
            extern "C" {
                #[link_name = "[resource-drop]queue"]
                fn drop_resource(handle: i32);
            }
            unsafe { drop_resource(self.0) }
        }
    }

    impl abi::Shape for Queue { const SIZE: usize = 4; const ALIGN: usize = 4; const FLAT: usize = 1; }

    impl abi::Lift for Queue {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self(abi::Lift::lift(at))
        }
    }

    impl abi::Lower for Queue {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, _: &mut abi::Kept) {
            *(at as *mut i32) = self.0;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(self.0 as u32 as u64);
        }
    }
}

/// Memory of the model's device. An address is a `u32` in an address space that the inferlet has for each model. An invocation never gets the
/// same address twice.
/// A KV page has `page-size` slots. A slot holds a key, a value, a position and the flags *filled* and *masked*.
/// An embed holds one token's embedding or one output state, and a position. The position of a state is one past the position of its input, so
/// that the state can be the next input.
/// Calls that allocate, free, share or copy travel with the calls around them and cost no round trip. Calls with names (export, import, …)
/// cost one round trip each; persistent exports also cost a disk write.
pub mod allocate {
    use crate::abi;

    /// A named snapshot of pages, which belongs to the tenant.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct ExportInfo {
        pub name: String,
        pub pages: u32,
        /// Number of filled slots.
        pub tokens: u32,
        /// The largest position plus one.
        pub next_position: u32,
        /// True when the export survives a restart of the GPU host.
        pub persistent: bool,
    }

    impl abi::Shape for ExportInfo { const SIZE: usize = 24; const ALIGN: usize = 4; const FLAT: usize = 6; }

    impl abi::Lift for ExportInfo {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                name: abi::Lift::lift(at.add(0)),
                pages: abi::Lift::lift(at.add(8)),
                tokens: abi::Lift::lift(at.add(12)),
                next_position: abi::Lift::lift(at.add(16)),
                persistent: abi::Lift::lift(at.add(20)),
            }
        }
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Imported {
        pub pages: Vec<u32>,
        pub tokens: u32,
        pub next_position: u32,
    }

    impl abi::Shape for Imported { const SIZE: usize = 16; const ALIGN: usize = 4; const FLAT: usize = 4; }

    impl abi::Lift for Imported {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                pages: abi::Lift::lift(at.add(0)),
                tokens: abi::Lift::lift(at.add(8)),
                next_position: abi::Lift::lift(at.add(12)),
            }
        }
    }

    /// A place that can hold pages, the fastest first: the device, the memory of the device's host, the host's disk.
    #[derive(Debug, Clone, PartialEq, Copy, Eq)]
    pub enum Tier {
        Device,
        Memory,
        Disk,
    }

    impl abi::Shape for Tier { const SIZE: usize = 1; const ALIGN: usize = 1; const FLAT: usize = 1; }

    impl abi::Lift for Tier {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            match *(at as *const u8) {
                0 => Self::Device,
                1 => Self::Memory,
                2 => Self::Disk,
                _ => abi::wrong_tag(),
            }
        }
    }

    impl abi::Lower for Tier {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            let _ = kept;
            *(at as *mut u8) = *self as u8;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(*self as u64);
        }
    }

    /// The reason for a lease's end: its time was over, or memory was needed for other work.
    #[derive(Debug, Clone, PartialEq, Copy, Eq)]
    pub enum LeaseEnd {
        Expired,
        Pressure,
    }

    impl abi::Shape for LeaseEnd { const SIZE: usize = 1; const ALIGN: usize = 1; const FLAT: usize = 1; }

    impl abi::Lift for LeaseEnd {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            match *(at as *const u8) {
                0 => Self::Expired,
                1 => Self::Pressure,
                _ => abi::wrong_tag(),
            }
        }
    }

    /// The places of an export's pages.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Residency {
        /// The slowest place of any page.
        pub tier: crate::allocate::Tier,
        pub device_pages: u32,
        pub memory_pages: u32,
        pub disk_pages: u32,
        /// Bytes of all keys and values.
        pub bytes: u64,
        /// Milliseconds that the lease still lasts; 0 without a lease.
        pub lease_ms: u32,
        /// The reason for the end of the last lease. None before the first lease, while a lease lasts, and after `unpin-export` or
        /// `demote-export`.
        pub lease_ended: Option<crate::allocate::LeaseEnd>,
    }

    impl abi::Shape for Residency { const SIZE: usize = 32; const ALIGN: usize = 8; const FLAT: usize = 8; }

    impl abi::Lift for Residency {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                tier: abi::Lift::lift(at.add(0)),
                device_pages: abi::Lift::lift(at.add(4)),
                memory_pages: abi::Lift::lift(at.add(8)),
                disk_pages: abi::Lift::lift(at.add(12)),
                bytes: abi::Lift::lift(at.add(16)),
                lease_ms: abi::Lift::lift(at.add(24)),
                lease_ended: abi::Lift::lift(at.add(28)),
            }
        }
    }

    /// Number of slots of a KV page (8 to 32, 16 by default).
    #[must_use]
    #[inline]
    pub fn page_size(queue: &crate::queue::Queue) -> u32 {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "page-size"]
            fn call(a0: i32) -> i32;
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        unsafe { call(arguments.i32(0)) as u32 }
    }

    /// Addresses of `count` empty pages. The device claims their memory in queue order; if the device has no memory then, the calls that
    /// use the pages fail. `limit-exceeded` at once when the pages would exceed the invocation's page limit.
    #[inline]
    pub fn allocate_pages(queue: &crate::queue::Queue, count: u32) -> Result<Vec<u32>, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "allocate-pages"]
            fn call(a0: i32, a1: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&count, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// Frees pages after the earlier calls of the queue. The other holders of a shared page keep it.
    #[inline]
    pub fn free_pages(queue: &crate::queue::Queue, pages: &[u32]) {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "free-pages"]
            fn call(a0: i32, a1: i32, a2: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&pages, &mut arguments);
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2)) }
    }

    /// Addresses of `count` embeds.
    #[inline]
    pub fn allocate_embeds(queue: &crate::queue::Queue, count: u32) -> Result<Vec<u32>, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "allocate-embeds"]
            fn call(a0: i32, a1: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&count, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    #[inline]
    pub fn free_embeds(queue: &crate::queue::Queue, embeds: &[u32]) {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "free-embeds"]
            fn call(a0: i32, a1: i32, a2: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&embeds, &mut arguments);
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2)) }
    }

    /// New addresses for the same pages. A later write through either address copies the page first. Each new address starts with the source's
    /// mask and has its own mask from then on.
    #[inline]
    pub fn share_pages(queue: &crate::queue::Queue, pages: &[u32]) -> Result<Vec<u32>, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "share-pages"]
            fn call(a0: i32, a1: i32, a2: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&pages, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// Copies `count` slots (key, value, position, filled, masked) from one page to another, or within a page. Adds `shift` to the position of
    /// each copied slot and rotates its key accordingly; the position may exceed the trained context. `unsupported` when the model's rotary embedding
    /// cannot be shifted.
    #[inline]
    pub fn copy_slots(queue: &crate::queue::Queue, source: u32, source_offset: u32, destination: u32, destination_offset: u32, count: u32, shift: i32) {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "copy-slots"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32, a6: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&source, &mut arguments);
        abi::Lower::flat(&source_offset, &mut arguments);
        abi::Lower::flat(&destination, &mut arguments);
        abi::Lower::flat(&destination_offset, &mut arguments);
        abi::Lower::flat(&count, &mut arguments);
        abi::Lower::flat(&shift, &mut arguments);
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5), arguments.i32(6)) }
    }

    /// Copies single tokens. `indices` are indices into the filled slots of `sources`, in order. Keys and values go to the empty slots of
    /// `destinations`, in order. `positions` has a new position for each token, and the copied key is rotated to it; an empty list keeps the positions.
    #[inline]
    pub fn copy_tokens(queue: &crate::queue::Queue, sources: &[u32], indices: &[u32], destinations: &[u32], positions: &[u32]) {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "copy-tokens"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32, a6: i32, a7: i32, a8: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&sources, &mut arguments);
        abi::Lower::flat(&indices, &mut arguments);
        abi::Lower::flat(&destinations, &mut arguments);
        abi::Lower::flat(&positions, &mut arguments);
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5), arguments.i32(6), arguments.i32(7), arguments.i32(8)) }
    }

    /// Copies each source embed to the destination with the same index.
    #[inline]
    pub fn copy_embeds(queue: &crate::queue::Queue, sources: &[u32], destinations: &[u32]) {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "copy-embeds"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&sources, &mut arguments);
        abi::Lower::flat(&destinations, &mut arguments);
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4)) }
    }

    /// Saves a snapshot of `pages`, with their masks, under the tenant's `name`, after the earlier calls that write them. Later writes copy the
    /// pages first. The export outlives the inferlet and counts against the tenant. A `persistent` export is on disk when the future completes.
    /// `invalid-argument` when the name is in use. A name has 1 to 128 characters: letters, digits, `.`, `_`, `-`, `/`.
    #[inline]
    pub fn export_pages(queue: &crate::queue::Queue, pages: &[u32], name: &str, persistent: bool) -> crate::Pending<Result<(), crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "export-pages"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32) -> i32;
            #[link_name = "[future-read-0]export-pages"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]export-pages"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&pages, &mut arguments);
        abi::Lower::flat(&name, &mut arguments);
        abi::Lower::flat(&persistent, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5)), read, forget) }
    }

    /// Maps the pages of an export. Pages are copied on write. `not-found` when no export has this name; `invalid-argument` for a persistent
    /// export of another model or build.
    #[inline]
    pub fn import_pages(queue: &crate::queue::Queue, name: &str) -> crate::Pending<Result<crate::allocate::Imported, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "import-pages"]
            fn call(a0: i32, a1: i32, a2: i32) -> i32;
            #[link_name = "[future-read-0]import-pages"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]import-pages"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&name, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2)), read, forget) }
    }

    /// Copies the pages of an export to the storage that the platform's machines share. Other hosts then find the name even while the GPU host
    /// that keeps it is away or lost. The copy holds the present content: a later export under the same name needs another call. `unexport` also
    /// removes the copy. A failed call leaves no copy. `not-found` when no export has this name; `unsupported` when the platform has no shared
    /// storage, or for a name under `system/`; `limit-exceeded` beyond the tenant's share of the storage; `unavailable` when the content changes
    /// during the copy, or when the export's host or the storage does not answer.
    #[inline]
    pub fn make_durable(queue: &crate::queue::Queue, name: &str) -> crate::Pending<Result<(), crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "make-durable"]
            fn call(a0: i32, a1: i32, a2: i32) -> i32;
            #[link_name = "[future-read-0]make-durable"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]make-durable"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&name, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2)), read, forget) }
    }

    /// Removes a name. Inferlets that have imported it keep its pages.
    #[inline]
    pub fn unexport(queue: &crate::queue::Queue, name: &str) -> crate::Pending<Result<(), crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "unexport"]
            fn call(a0: i32, a1: i32, a2: i32) -> i32;
            #[link_name = "[future-read-0]unexport"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]unexport"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&name, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2)), read, forget) }
    }

    /// The tenant's exports of the queue's model, ordered by name.
    #[inline]
    pub fn list_exports(queue: &crate::queue::Queue) -> crate::Pending<Result<Vec<crate::allocate::ExportInfo>, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "list-exports"]
            fn call(a0: i32) -> i32;
            #[link_name = "[future-read-0]list-exports"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]list-exports"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
    }

    /// Returns the present places of an export's pages. This and the following calls accept the tenant's own exports only (`unsupported` for a
    /// name under `system/`). They affect how long later imports wait, never the imported content. They take only device memory that is free or
    /// holds cached prefixes, so no inferlet waits for memory because of them.
    #[inline]
    pub fn export_residency(queue: &crate::queue::Queue, name: &str) -> crate::Pending<Result<crate::allocate::Residency, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "export-residency"]
            fn call(a0: i32, a1: i32, a2: i32) -> i32;
            #[link_name = "[future-read-0]export-residency"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]export-residency"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&name, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2)), read, forget) }
    }

    /// Brings the pages of an export to the device as far as the device has room, and keeps these pages there for `lease-ms` (1 ms to 1 hour),
    /// even after the invocation has ended. Under memory pressure, the pages of waiting inferlets and of other exports leave the device first. If
    /// that is not enough, the lease ends early (`pressure`) before a running inferlet has to give way. A later call replaces the lease. All leases
    /// together hold at most a quarter of the device's pages. Of this quarter, a tenant may pin half of what the leases of other tenants leave; it
    /// may pin at most half of its own page quota. `limit-exceeded` for an export that the tenant may never pin, `unavailable` for one that it may
    /// not pin now. An export on disk counts against the invocation's pages while it comes back: `limit-exceeded` when it has more pages than the
    /// invocation may hold, `unavailable` when the device has no room for it.
    #[inline]
    pub fn pin_export(queue: &crate::queue::Queue, name: &str, lease_ms: u32) -> crate::Pending<Result<crate::allocate::Residency, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "pin-export"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32) -> i32;
            #[link_name = "[future-read-0]pin-export"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]pin-export"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&name, &mut arguments);
        abi::Lower::flat(&lease_ms, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3)), read, forget) }
    }

    /// Ends the lease.
    #[inline]
    pub fn unpin_export(queue: &crate::queue::Queue, name: &str) -> crate::Pending<Result<crate::allocate::Residency, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "unpin-export"]
            fn call(a0: i32, a1: i32, a2: i32) -> i32;
            #[link_name = "[future-read-0]unpin-export"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]unpin-export"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&name, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2)), read, forget) }
    }

    /// Hints that the export will be used in `next-use-ms` milliseconds. Of the tenant's exports, those without a hint leave the device first, then
    /// the one whose hinted use is latest. The hint holds until its time, or until the next import; 0 removes the hint. Exports on disk ignore it.
    #[inline]
    pub fn retain_export(queue: &crate::queue::Queue, name: &str, next_use_ms: u32) -> crate::Pending<Result<crate::allocate::Residency, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "retain-export"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32) -> i32;
            #[link_name = "[future-read-0]retain-export"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]retain-export"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&name, &mut arguments);
        abi::Lower::flat(&next_use_ms, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3)), read, forget) }
    }

    /// Brings the pages of an export to the device before they are used, as far as there is room. Fails for an export on disk as `pin-export` does.
    #[inline]
    pub fn prefetch_export(queue: &crate::queue::Queue, name: &str) -> crate::Pending<Result<crate::allocate::Residency, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "prefetch-export"]
            fn call(a0: i32, a1: i32, a2: i32) -> i32;
            #[link_name = "[future-read-0]prefetch-export"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]prefetch-export"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&name, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2)), read, forget) }
    }

    /// Ends the lease, and moves the export's pages off the device, except pages that an inferlet also holds. With `memory`, pages without room in
    /// memory go to disk; when the disk is full, too, they stay on the device. With `disk`, a persistent export drops its pages from the device and
    /// from memory; they then count against no quota. `unsupported` for `disk` while the export has no file; `invalid-argument` for `device`.
    #[inline]
    pub fn demote_export(queue: &crate::queue::Queue, name: &str, tier: crate::allocate::Tier) -> crate::Pending<Result<crate::allocate::Residency, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/allocate@0.1.0")]
        extern "C" {
            #[link_name = "demote-export"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32) -> i32;
            #[link_name = "[future-read-0]demote-export"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]demote-export"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&name, &mut arguments);
        abi::Lower::flat(&tier, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3)), read, forget) }
    }
}

/// The transformer over KV pages. A forward returns at once. The GPU host computes it in a batch with forwards of other inferlets. The forwards of a
/// decoding batch share the time of reading the weights once. Prefill is bound by arithmetic: about two operations per weight and input.
pub mod forward {
    use crate::abi;

    /// The keys that each input sees, run-length encoded. Row i belongs to input i. It covers the filled slots of the in-pages, in order, and then
    /// the inputs. A row is a list of run lengths that alternate hidden, visible, hidden, … and add up to the row's width. The first run is hidden;
    /// its length is 0 when the first key is visible.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Mask {
        /// The runs of all rows, one row after another.
        pub runs: Vec<u32>,
        /// The number of runs of each row.
        pub row_lengths: Vec<u32>,
    }

    impl abi::Shape for Mask { const SIZE: usize = 16; const ALIGN: usize = 4; const FLAT: usize = 4; }

    impl abi::Lower for Mask {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.runs, at.add(0), kept);
            abi::Lower::lower(&self.row_lengths, at.add(8), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.runs, to);
            abi::Lower::flat(&self.row_lengths, to);
        }
    }

    /// Computes `in-embeds`, which attend to the filled, unmasked slots of `in-pages` and to each other. The key and value of input i go to the
    /// i-th empty slot of `out-pages`; without out-pages they exist for this call only. A page may be both in and out: its filled slots are read
    /// first. The states of the last inputs, one for each embed of `out-embeds`, are written to `out-embeds`.
    /// Usage: each embed that receives a token or a part of an image counts one token, which includes one computation as an input. Each further
    /// computation of an input counts one token, also when the input is a state or a copy.
    /// Without a mask, an input sees its own key and all keys at smaller positions.
    #[inline]
    pub fn forward(queue: &crate::queue::Queue, in_pages: &[u32], in_embeds: &[u32], out_pages: &[u32], out_embeds: &[u32], mask: Option<&crate::forward::Mask>) {
        #[link(wasm_import_module = "pie:inferlet/forward@0.1.0")]
        extern "C" {
            #[link_name = "forward"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32, a6: i32, a7: i32, a8: i32, a9: i32, a10: i32, a11: i32, a12: i32, a13: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&in_pages, &mut arguments);
        abi::Lower::flat(&in_embeds, &mut arguments);
        abi::Lower::flat(&out_pages, &mut arguments);
        abi::Lower::flat(&out_embeds, &mut arguments);
        abi::Lower::flat(&mask, &mut arguments);
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5), arguments.i32(6), arguments.i32(7), arguments.i32(8), arguments.i32(9), arguments.i32(10), arguments.i32(11), arguments.i32(12), arguments.i32(13)) }
    }

    /// Masks the slots of a page whose bits are set in `slots` (bit 0 is slot 0), and unmasks the others. Other addresses of
    /// a shared page keep their masks.
    #[inline]
    pub fn mask_page(queue: &crate::queue::Queue, page: u32, slots: u32) {
        #[link(wasm_import_module = "pie:inferlet/forward@0.1.0")]
        extern "C" {
            #[link_name = "mask-page"]
            fn call(a0: i32, a1: i32, a2: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&page, &mut arguments);
        abi::Lower::flat(&slots, &mut arguments);
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2)) }
    }
}

/// Writes tokens into embeds. The call travels with the forward after it and takes no time of its own.
pub mod input_text {
    use crate::abi;

    /// Writes the embedding of `tokens[i]`, at `positions[i]`, into `embeds[i]`. The three lists have the same length.
    #[inline]
    pub fn embed_text(queue: &crate::queue::Queue, tokens: &[u32], positions: &[u32], embeds: &[u32]) {
        #[link(wasm_import_module = "pie:inferlet/input-text@0.1.0")]
        extern "C" {
            #[link_name = "embed-text"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32, a6: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&tokens, &mut arguments);
        abi::Lower::flat(&positions, &mut arguments);
        abi::Lower::flat(&embeds, &mut arguments);
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5), arguments.i32(6)) }
    }
}

/// Reads embeds (each holds a token's embedding or a state), and the distribution of the token after a state. A call of
/// `next-distribution` directly after the forward that writes the state, in the same queue, can share the forward's device step.
pub mod output_text {
    use crate::abi;

    /// The most probable tokens, in order of falling probability. Tokens with equal logits are ordered by id.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Distribution {
        pub tokens: Vec<u32>,
        /// Natural logarithms of the tokens' probabilities over the whole vocabulary, at temperature 1.
        pub log_probabilities: Vec<f32>,
    }

    impl abi::Shape for Distribution { const SIZE: usize = 16; const ALIGN: usize = 4; const FLAT: usize = 4; }

    impl abi::Lift for Distribution {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                tokens: abi::Lift::lift(at.add(0)),
                log_probabilities: abi::Lift::lift(at.add(8)),
            }
        }
    }

    /// The distribution of the token that follows the state in `embed`: the `top-k` most probable tokens (1 to the host's cap of 256).
    #[inline]
    pub fn next_distribution(queue: &crate::queue::Queue, embed: u32, top_k: u32) -> crate::Pending<Result<crate::output_text::Distribution, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/output-text@0.1.0")]
        extern "C" {
            #[link_name = "next-distribution"]
            fn call(a0: i32, a1: i32, a2: i32) -> i32;
            #[link_name = "[future-read-0]next-distribution"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]next-distribution"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&embed, &mut arguments);
        abi::Lower::flat(&top_k, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2)), read, forget) }
    }

    /// Natural logarithms of the probabilities of `tokens` after the state in `embed`, over the whole vocabulary, at temperature 1.
    #[inline]
    pub fn log_probabilities(queue: &crate::queue::Queue, embed: u32, tokens: &[u32]) -> crate::Pending<Result<Vec<f32>, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/output-text@0.1.0")]
        extern "C" {
            #[link_name = "log-probabilities"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32) -> i32;
            #[link_name = "[future-read-0]log-probabilities"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]log-probabilities"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&embed, &mut arguments);
        abi::Lower::flat(&tokens, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3)), read, forget) }
    }

    /// The entropy of the distribution after the state in `embed`, in nats.
    #[inline]
    pub fn entropy(queue: &crate::queue::Queue, embed: u32) -> crate::Pending<Result<f32, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/output-text@0.1.0")]
        extern "C" {
            #[link_name = "entropy"]
            fn call(a0: i32, a1: i32) -> i32;
            #[link_name = "[future-read-0]entropy"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]entropy"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&embed, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1)), read, forget) }
    }

    /// The values of an embed, one for each dimension of the model's hidden size.
    #[inline]
    pub fn read_embed(queue: &crate::queue::Queue, embed: u32) -> crate::Pending<Result<Vec<f32>, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/output-text@0.1.0")]
        extern "C" {
            #[link_name = "read-embed"]
            fn call(a0: i32, a1: i32) -> i32;
            #[link_name = "[future-read-0]read-embed"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]read-embed"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&embed, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1)), read, forget) }
    }
}

/// Embed, forward and sample in one call. A token costs one call, and with `run` less than one.
pub mod fused {
    use crate::abi;

    /// Sampling parameters. `temperature` 0 is greedy and ignores the other parameters. `top-k` 0, `top-p` 1 and `min-p` 0 switch these cuts off; a draw
    /// without a cut is from the whole vocabulary. The cuts apply in the order top-k, top-p, min-p, to probabilities after the temperature. Each keeps
    /// the first tokens in order of falling probability, then rising id, and is relative to the tokens that the cut before it kept. On NVIDIA cards,
    /// a draw is from the 256 most probable tokens at most, and the cuts are relative to those. Equal seeds give equal tokens: the draw depends only on
    /// the seed and on the input's position.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Sampler {
        pub temperature: f32,
        pub top_k: u32,
        pub top_p: f32,
        pub min_p: f32,
        pub seed: u32,
    }

    impl abi::Shape for Sampler { const SIZE: usize = 20; const ALIGN: usize = 4; const FLAT: usize = 5; }

    impl abi::Lower for Sampler {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.temperature, at.add(0), kept);
            abi::Lower::lower(&self.top_k, at.add(4), kept);
            abi::Lower::lower(&self.top_p, at.add(8), kept);
            abi::Lower::lower(&self.min_p, at.add(12), kept);
            abi::Lower::lower(&self.seed, at.add(16), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.temperature, to);
            abi::Lower::flat(&self.top_k, to);
            abi::Lower::flat(&self.top_p, to);
            abi::Lower::flat(&self.min_p, to);
            abi::Lower::flat(&self.seed, to);
        }
    }

    /// Result of a step for each of its last `rows` inputs.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub enum Output {
        /// Nothing. The step only fills the cache.
        #[default]
        None,
        /// One sampled token for each row.
        Sample(crate::fused::Sampler),
        /// For each row, this number (`top-k`) of the most probable tokens.
        Distributions(u32),
    }

    impl abi::Shape for Output { const SIZE: usize = 24; const ALIGN: usize = 4; const FLAT: usize = 6; }

    impl abi::Lower for Output {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            match self {
                Self::None => *(at as *mut u8) = 0,
                Self::Sample(value) => { *(at as *mut u8) = 1; abi::Lower::lower(value, at.add(4), kept) }
                Self::Distributions(value) => { *(at as *mut u8) = 2; abi::Lower::lower(value, at.add(4), kept) }
            }
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            let end = to.count() + <Self as abi::Shape>::FLAT;
            match self {
                Self::None => to.push(0),
                Self::Sample(value) => { to.push(1); abi::Lower::flat(value, to) }
                Self::Distributions(value) => { to.push(2); abi::Lower::flat(value, to) }
            }
            to.pad(end);
        }
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct StepRequest {
        pub tokens: Vec<u32>,
        pub positions: Vec<u32>,
        pub in_pages: Vec<u32>,
        pub out_pages: Vec<u32>,
        pub mask: Option<crate::forward::Mask>,
        /// Number of last inputs that get an output.
        pub rows: u32,
        pub output: crate::fused::Output,
    }

    impl abi::Shape for StepRequest { const SIZE: usize = 80; const ALIGN: usize = 4; const FLAT: usize = 20; }

    impl abi::Lower for StepRequest {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.tokens, at.add(0), kept);
            abi::Lower::lower(&self.positions, at.add(8), kept);
            abi::Lower::lower(&self.in_pages, at.add(16), kept);
            abi::Lower::lower(&self.out_pages, at.add(24), kept);
            abi::Lower::lower(&self.mask, at.add(32), kept);
            abi::Lower::lower(&self.rows, at.add(52), kept);
            abi::Lower::lower(&self.output, at.add(56), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.tokens, to);
            abi::Lower::flat(&self.positions, to);
            abi::Lower::flat(&self.in_pages, to);
            abi::Lower::flat(&self.out_pages, to);
            abi::Lower::flat(&self.mask, to);
            abi::Lower::flat(&self.rows, to);
            abi::Lower::flat(&self.output, to);
        }
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct StepResult {
        /// One token for each row with `sample`, otherwise empty.
        pub tokens: Vec<u32>,
        /// One distribution for each row with `distributions`, otherwise empty.
        pub distributions: Vec<crate::output_text::Distribution>,
    }

    impl abi::Shape for StepResult { const SIZE: usize = 16; const ALIGN: usize = 4; const FLAT: usize = 4; }

    impl abi::Lift for StepResult {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                tokens: abi::Lift::lift(at.add(0)),
                distributions: abi::Lift::lift(at.add(8)),
            }
        }
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct RunRequest {
        /// The first input. Each later input is the token sampled before it, at the next position.
        pub token: u32,
        /// Position of the first input.
        pub position: u32,
        /// The pages of the sequence, in order, with empty slots for `max-tokens` tokens. The run reads them and appends to them.
        pub pages: Vec<u32>,
        pub max_tokens: u32,
        pub sampler: crate::fused::Sampler,
        /// Decoding stops after it samples one of these tokens. The run returns this token as its last, without its key and value in the cache. With
        /// more than 256 stop tokens the run fails with `invalid-argument`.
        pub stop_tokens: Vec<u32>,
    }

    impl abi::Shape for RunRequest { const SIZE: usize = 48; const ALIGN: usize = 4; const FLAT: usize = 12; }

    impl abi::Lower for RunRequest {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.token, at.add(0), kept);
            abi::Lower::lower(&self.position, at.add(4), kept);
            abi::Lower::lower(&self.pages, at.add(8), kept);
            abi::Lower::lower(&self.max_tokens, at.add(16), kept);
            abi::Lower::lower(&self.sampler, at.add(20), kept);
            abi::Lower::lower(&self.stop_tokens, at.add(40), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.token, to);
            abi::Lower::flat(&self.position, to);
            abi::Lower::flat(&self.pages, to);
            abi::Lower::flat(&self.max_tokens, to);
            abi::Lower::flat(&self.sampler, to);
            abi::Lower::flat(&self.stop_tokens, to);
        }
    }

    #[derive(Debug, Clone, PartialEq, Copy, Eq)]
    pub enum FinishReason {
        StopToken,
        MaxTokens,
        /// The run was stopped, or the grammar allows no further text.
        Stopped,
    }

    impl abi::Shape for FinishReason { const SIZE: usize = 1; const ALIGN: usize = 1; const FLAT: usize = 1; }

    impl abi::Lift for FinishReason {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            match *(at as *const u8) {
                0 => Self::StopToken,
                1 => Self::MaxTokens,
                2 => Self::Stopped,
                _ => abi::wrong_tag(),
            }
        }
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct RunChunk {
        /// The tokens since the last `next`, in order; at least one unless the run has finished.
        pub tokens: Vec<u32>,
        /// Set in the last chunk.
        pub finished: Option<crate::fused::FinishReason>,
    }

    impl abi::Shape for RunChunk { const SIZE: usize = 12; const ALIGN: usize = 4; const FLAT: usize = 4; }

    impl abi::Lift for RunChunk {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                tokens: abi::Lift::lift(at.add(0)),
                finished: abi::Lift::lift(at.add(8)),
            }
        }
    }

    /// Format of the messages that carry the pieces of a text.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Frame {
        /// Text of a separate message before the first piece. An empty text sends no such message.
        pub opening: String,
        /// Text before each piece. The piece itself is written as a JSON string.
        pub before: String,
        /// Text after each piece.
        pub after: String,
    }

    impl abi::Shape for Frame { const SIZE: usize = 24; const ALIGN: usize = 4; const FLAT: usize = 6; }

    impl abi::Lower for Frame {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.opening, at.add(0), kept);
            abi::Lower::lower(&self.before, at.add(8), kept);
            abi::Lower::lower(&self.after, at.add(16), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.opening, to);
            abi::Lower::flat(&self.before, to);
            abi::Lower::flat(&self.after, to);
        }
    }

    /// Options of `run.pipe`.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct PipeRequest {
        /// The last tokens of the text before the run, including tokens whose bytes do not complete a character yet. The run's text continues them.
        pub before: Vec<u32>,
        /// The unsent end of the text before the run: it may be the beginning of a stop string.
        pub held: String,
        /// Stop strings: they end the run and are not sent. At most 64 strings with 1,024 bytes together, otherwise `limit-exceeded`.
        pub stops: Vec<String>,
        /// Format of the messages. By default, each piece is a message of its own. The texts have at most 8,192 bytes together, otherwise
        /// `limit-exceeded`.
        pub frame: Option<crate::fused::Frame>,
    }

    impl abi::Shape for PipeRequest { const SIZE: usize = 52; const ALIGN: usize = 4; const FLAT: usize = 13; }

    impl abi::Lower for PipeRequest {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.before, at.add(0), kept);
            abi::Lower::lower(&self.held, at.add(8), kept);
            abi::Lower::lower(&self.stops, at.add(16), kept);
            abi::Lower::lower(&self.frame, at.add(24), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.before, to);
            abi::Lower::flat(&self.held, to);
            abi::Lower::flat(&self.stops, to);
            abi::Lower::flat(&self.frame, to);
        }
    }

    /// Result of `run.pipe`.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Piped {
        /// The run's tokens since the last `next` or `pipe`, in order, up to the token that completed a stop string.
        pub tokens: Vec<u32>,
        /// The sent text.
        pub text: String,
        /// The unsent end of the text: it may be the beginning of a stop string.
        pub held: String,
        /// The stop string that ended the run. The platform discards the tokens after the string. It charges them only if it had decoded them before the
        /// call of `pipe`.
        pub stop: Option<String>,
        /// Unset after a stop string, and when an error ended the run: the next call reports the error.
        pub finished: Option<crate::fused::FinishReason>,
    }

    impl abi::Shape for Piped { const SIZE: usize = 40; const ALIGN: usize = 4; const FLAT: usize = 11; }

    impl abi::Lift for Piped {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                tokens: abi::Lift::lift(at.add(0)),
                text: abi::Lift::lift(at.add(8)),
                held: abi::Lift::lift(at.add(16)),
                stop: abi::Lift::lift(at.add(24)),
                finished: abi::Lift::lift(at.add(36)),
            }
        }
    }

    /// Decodes tokens on the device, ahead of the inferlet.
    #[derive(Debug)]
    pub struct Run(i32);

    impl Run {
        /// Starts decoding. `next` reports failures.
        #[inline]
        pub fn new(queue: &crate::queue::Queue, request: &crate::fused::RunRequest) -> Self {
            #[link(wasm_import_module = "pie:inferlet/fused@0.1.0")]
            extern "C" {
                #[link_name = "[constructor]run"]
                fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32, a6: f32, a7: i32, a8: f32, a9: f32, a10: i32, a11: i32, a12: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&queue, &mut arguments);
            abi::Lower::flat(&request, &mut arguments);
            unsafe { crate::fused::Run::from_handle(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5), arguments.f32(6), arguments.i32(7), arguments.f32(8), arguments.f32(9), arguments.i32(10), arguments.i32(11), arguments.i32(12))) }
        }

        /// The tokens that the run has decoded since the last `next`. Waits for at least one unless the run has finished.
        #[inline]
        pub fn next(&self) -> crate::Pending<Result<crate::fused::RunChunk, crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/fused@0.1.0")]
            extern "C" {
                #[link_name = "[method]run.next"]
                fn call(a0: i32) -> i32;
                #[link_name = "[future-read-0][method]run.next"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]run.next"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
        }

        /// Decodes until the run has finished, and sends its text to the client in `message` events meanwhile, without waking the inferlet. A run
        /// has one `next` or `pipe` in progress at a time, and an inferlet at most 256 pipes.
        #[inline]
        pub fn pipe(&self, request: &crate::fused::PipeRequest) -> crate::Pending<Result<crate::fused::Piped, crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/fused@0.1.0")]
            extern "C" {
                #[link_name = "[method]run.pipe"]
                fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32, a6: i32, a7: i32, a8: i32, a9: i32, a10: i32, a11: i32, a12: i32, a13: i32) -> i32;
                #[link_name = "[future-read-0][method]run.pipe"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]run.pipe"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&request, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5), arguments.i32(6), arguments.i32(7), arguments.i32(8), arguments.i32(9), arguments.i32(10), arguments.i32(11), arguments.i32(12), arguments.i32(13)), read, forget) }
        }

        /// Stops the run. Tokens that are already decoded are still returned. Dropping the resource stops the run, too, and charges the tokens that are
        /// decoded but not read. After a stop string of `pipe`, only tokens that were decoded before the call of `pipe` are charged.
        #[inline]
        pub fn stop(&self) {
            #[link(wasm_import_module = "pie:inferlet/fused@0.1.0")]
            extern "C" {
                #[link_name = "[method]run.stop"]
                fn call(a0: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { call(arguments.i32(0)) }
        }

        pub(crate) fn from_handle(handle: i32) -> Self {
            Self(handle)
        }
    }

    impl Drop for Run {
        #[inline]
        fn drop(&mut self) {
            #[link(wasm_import_module = "pie:inferlet/fused@0.1.0")]
            extern "C" {
                #[link_name = "[resource-drop]run"]
                fn drop_resource(handle: i32);
            }
            unsafe { drop_resource(self.0) }
        }
    }

    impl abi::Shape for Run { const SIZE: usize = 4; const ALIGN: usize = 4; const FLAT: usize = 1; }

    impl abi::Lift for Run {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self(abi::Lift::lift(at))
        }
    }

    impl abi::Lower for Run {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, _: &mut abi::Kept) {
            *(at as *mut i32) = self.0;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(self.0 as u32 as u64);
        }
    }

    /// Embeds `tokens`, computes them as `forward` does, and completes with the output of the last `rows` inputs.
    #[inline]
    pub fn step(queue: &crate::queue::Queue, request: &crate::fused::StepRequest) -> crate::Pending<Result<crate::fused::StepResult, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/fused@0.1.0")]
        extern "C" {
            #[link_name = "step"]
            fn call(arguments: *const u8) -> i32;
            #[link_name = "[future-read-0]step"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]step"]
            fn forget(future: i32);
        }
        let mut kept = abi::Kept::new();
        let mut arguments = abi::Area::new();
        unsafe { abi::Lower::lower(&queue, arguments.at().add(0), &mut kept) };
        unsafe { abi::Lower::lower(&request, arguments.at().add(4), &mut kept) };
        unsafe { abi::Pending::new(call(arguments.at()), read, forget) }
    }
}

/// Converts text to tokens and back, without a device. A call takes about a microsecond per token; tenants take turns with long texts.
/// `limit-exceeded` when one call has more than 131,072 characters (split longer texts at ends of lines), 131,072 tokens, or 8,192 chat messages.
pub mod tokenize {
    use crate::abi;

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct SpecialTokenIds {
        pub bos: Option<u32>,
        pub eos: Vec<u32>,
        pub pad: Option<u32>,
        pub unknown: Option<u32>,
    }

    impl abi::Shape for SpecialTokenIds { const SIZE: usize = 32; const ALIGN: usize = 4; const FLAT: usize = 8; }

    impl abi::Lift for SpecialTokenIds {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                bos: abi::Lift::lift(at.add(0)),
                eos: abi::Lift::lift(at.add(8)),
                pad: abi::Lift::lift(at.add(16)),
                unknown: abi::Lift::lift(at.add(24)),
            }
        }
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct ChatMessage {
        /// `system`, `user`, `assistant` or `tool`.
        pub role: String,
        pub content: String,
    }

    impl abi::Shape for ChatMessage { const SIZE: usize = 16; const ALIGN: usize = 4; const FLAT: usize = 4; }

    impl abi::Lower for ChatMessage {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.role, at.add(0), kept);
            abi::Lower::lower(&self.content, at.add(8), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.role, to);
            abi::Lower::flat(&self.content, to);
        }
    }

    /// How a model writes a thought before its answer.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct ThoughtFormat {
        /// Text before a thought, as the chat template writes it: `<think>\n`. A prompt may end with this text; the model then goes on inside the thought.
        pub open: String,
        /// Text between the thought and the answer. To end a thought, append this text with its special tokens parsed.
        pub close: String,
        /// Mark before a thought in generated text, whose white space may differ from the template's: `<think>`.
        pub begin: String,
        /// Mark after a thought in generated text: `</think>`. Like `begin`, it may consist of special tokens, which `detokenize` omits by default.
        pub end: String,
        /// Member of an assistant's message in which the template reads a thought, such as `reasoning_content`; none if it reads none.
        pub field: Option<String>,
        /// Boolean variables of the template that turn thoughts on and off, such as `enable_thinking`.
        pub toggles: Vec<String>,
        /// Values that the template takes as its variable `reasoning_effort`, in rising order; empty if it does not read this variable.
        pub efforts: Vec<String>,
    }

    impl abi::Shape for ThoughtFormat { const SIZE: usize = 60; const ALIGN: usize = 4; const FLAT: usize = 15; }

    impl abi::Lift for ThoughtFormat {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                open: abi::Lift::lift(at.add(0)),
                close: abi::Lift::lift(at.add(8)),
                begin: abi::Lift::lift(at.add(16)),
                end: abi::Lift::lift(at.add(24)),
                field: abi::Lift::lift(at.add(32)),
                toggles: abi::Lift::lift(at.add(44)),
                efforts: abi::Lift::lift(at.add(52)),
            }
        }
    }

    /// Detokenizes a stream. It returns only complete characters.
    #[derive(Debug)]
    pub struct Detokenizer(i32);

    impl Detokenizer {
        #[inline]
        pub fn new(model: &str) -> Self {
            #[link(wasm_import_module = "pie:inferlet/tokenize@0.1.0")]
            extern "C" {
                #[link_name = "[constructor]detokenizer"]
                fn call(a0: i32, a1: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&model, &mut arguments);
            unsafe { crate::tokenize::Detokenizer::from_handle(call(arguments.i32(0), arguments.i32(1))) }
        }

        /// The text of the characters that these tokens complete.
        #[inline]
        pub fn push(&self, tokens: &[u32]) -> Result<String, crate::types::Error> {
            #[link(wasm_import_module = "pie:inferlet/tokenize@0.1.0")]
            extern "C" {
                #[link_name = "[method]detokenizer.push"]
                fn call(a0: i32, a1: i32, a2: i32, result: *mut u8);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&tokens, &mut arguments);
            let mut result = abi::Area::new();
            unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), result.at()) };
            unsafe { abi::Lift::lift(result.at()) }
        }

        /// The remaining text, with U+FFFD for bytes that do not form a character.
        #[must_use]
        #[inline]
        pub fn finish(&self) -> String {
            #[link(wasm_import_module = "pie:inferlet/tokenize@0.1.0")]
            extern "C" {
                #[link_name = "[method]detokenizer.finish"]
                fn call(a0: i32, result: *mut u8);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            let mut result = abi::Area::new();
            unsafe { call(arguments.i32(0), result.at()) };
            unsafe { abi::Lift::lift(result.at()) }
        }

        pub(crate) fn from_handle(handle: i32) -> Self {
            Self(handle)
        }
    }

    impl Drop for Detokenizer {
        #[inline]
        fn drop(&mut self) {
            #[link(wasm_import_module = "pie:inferlet/tokenize@0.1.0")]
            extern "C" {
                #[link_name = "[resource-drop]detokenizer"]
                fn drop_resource(handle: i32);
            }
            unsafe { drop_resource(self.0) }
        }
    }

    impl abi::Shape for Detokenizer { const SIZE: usize = 4; const ALIGN: usize = 4; const FLAT: usize = 1; }

    impl abi::Lift for Detokenizer {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self(abi::Lift::lift(at))
        }
    }

    impl abi::Lower for Detokenizer {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, _: &mut abi::Kept) {
            *(at as *mut i32) = self.0;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(self.0 as u32 as u64);
        }
    }

    /// The token ids of `text`, without added special tokens. Special tokens inside the text are recognised when `special` is true.
    #[inline]
    pub fn tokenize(model: &str, text: &str, special: bool) -> Result<Vec<u32>, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/tokenize@0.1.0")]
        extern "C" {
            #[link_name = "tokenize"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&model, &mut arguments);
        abi::Lower::flat(&text, &mut arguments);
        abi::Lower::flat(&special, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// The text of `tokens`. Special tokens are omitted unless `special` is true.
    #[inline]
    pub fn detokenize(model: &str, tokens: &[u32], special: bool) -> Result<String, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/tokenize@0.1.0")]
        extern "C" {
            #[link_name = "detokenize"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&model, &mut arguments);
        abi::Lower::flat(&tokens, &mut arguments);
        abi::Lower::flat(&special, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    #[inline]
    pub fn special_tokens(model: &str) -> Result<crate::tokenize::SpecialTokenIds, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/tokenize@0.1.0")]
        extern "C" {
            #[link_name = "special-tokens"]
            fn call(a0: i32, a1: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&model, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// The bytes of every token, indexed by id.
    #[inline]
    pub fn vocabulary(model: &str) -> Result<Vec<Vec<u8>>, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/tokenize@0.1.0")]
        extern "C" {
            #[link_name = "vocabulary"]
            fn call(a0: i32, a1: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&model, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// Applies the model's chat template to `messages`. Tokenize the returned text with `special`. `unsupported` when the model has no template.
    #[inline]
    pub fn chat_template(model: &str, messages: &[crate::tokenize::ChatMessage], add_generation_prompt: bool) -> Result<String, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/tokenize@0.1.0")]
        extern "C" {
            #[link_name = "chat-template"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&model, &mut arguments);
        abi::Lower::flat(&messages, &mut arguments);
        abi::Lower::flat(&add_generation_prompt, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// Applies the model's chat template to `variables`, a JSON object with `messages` (each with any members that the template knows, such
    /// as `tool_calls`), `tools`, `documents`, `add_generation_prompt`, … Variables such as `bos_token` and `eos_token` default to the model's.
    /// `invalid-argument` when the text is not a JSON object or the template refuses it; `unsupported` when the model has no template.
    #[inline]
    pub fn render_chat(model: &str, variables: &str) -> Result<String, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/tokenize@0.1.0")]
        extern "C" {
            #[link_name = "render-chat"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&model, &mut arguments);
        abi::Lower::flat(&variables, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// How the model writes thoughts: by its setting in `pie.toml`, by its chat template, or by known marks among its tokens. Returns none for a model
    /// that writes no thoughts, or whose thoughts cannot be told from its answers.
    #[inline]
    pub fn thoughts(model: &str) -> Result<Option<crate::tokenize::ThoughtFormat>, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/tokenize@0.1.0")]
        extern "C" {
            #[link_name = "thoughts"]
            fn call(a0: i32, a1: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&model, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }
}

/// Grammars that constrain decoding to a format. The runtime compiles and matches them. A mask of the allowed tokens travels with the fused
/// call, and the device applies the mask before it samples. Calls of one matcher run in order.
/// Compiling takes milliseconds. A mask takes about 0.2 ms in a state that no matcher has visited before, otherwise microseconds.
pub mod grammar {
    use crate::abi;

    #[derive(Debug, Clone, PartialEq)]
    pub enum Source {
        /// A JSON schema as text. With `"x-guidance": {"whitespace_flexible": false}` at its root, the texts have no whitespace between tokens.
        JsonSchema(String),
        /// A regular expression that the whole text must match.
        Regex(String),
        /// A grammar in EBNF (the GBNF of llama.cpp) with the start rule `root`.
        Ebnf(String),
        /// Any JSON text.
        Json,
    }

    impl abi::Shape for Source { const SIZE: usize = 12; const ALIGN: usize = 4; const FLAT: usize = 3; }

    impl abi::Lower for Source {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            match self {
                Self::JsonSchema(value) => { *(at as *mut u8) = 0; abi::Lower::lower(value, at.add(4), kept) }
                Self::Regex(value) => { *(at as *mut u8) = 1; abi::Lower::lower(value, at.add(4), kept) }
                Self::Ebnf(value) => { *(at as *mut u8) = 2; abi::Lower::lower(value, at.add(4), kept) }
                Self::Json => *(at as *mut u8) = 3,
            }
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            let end = to.count() + <Self as abi::Shape>::FLAT;
            match self {
                Self::JsonSchema(value) => { to.push(0); abi::Lower::flat(value, to) }
                Self::Regex(value) => { to.push(1); abi::Lower::flat(value, to) }
                Self::Ebnf(value) => { to.push(2); abi::Lower::flat(value, to) }
                Self::Json => to.push(3),
            }
            to.pad(end);
        }
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct MatchStatus {
        /// True when an end-of-sequence token is allowed now.
        pub may_end: bool,
        /// True when only the end is allowed, or the matcher has accepted the end.
        pub must_end: bool,
    }

    impl abi::Shape for MatchStatus { const SIZE: usize = 2; const ALIGN: usize = 1; const FLAT: usize = 2; }

    impl abi::Lift for MatchStatus {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                may_end: abi::Lift::lift(at.add(0)),
                must_end: abi::Lift::lift(at.add(1)),
            }
        }
    }

    /// A grammar that is compiled for the vocabulary of one model.
    #[derive(Debug)]
    pub struct Compiled(i32);

    impl Compiled {
        /// Starts compiling. `ready` and the matchers report failures.
        #[inline]
        pub fn new(model: &str, source: &crate::grammar::Source) -> Self {
            #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
            extern "C" {
                #[link_name = "[constructor]compiled"]
                fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&model, &mut arguments);
            abi::Lower::flat(&source, &mut arguments);
            unsafe { crate::grammar::Compiled::from_handle(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4))) }
        }

        /// `invalid-argument` when the grammar does not compile or is too large, `limit-exceeded` when compiling takes too much time or memory, or the
        /// tenant's share of memory is full, `unavailable` when no worker is free. Later calls of `ready` have the outcome of the first.
        #[inline]
        pub fn ready(&self) -> crate::Pending<Result<(), crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
            extern "C" {
                #[link_name = "[method]compiled.ready"]
                fn call(a0: i32) -> i32;
                #[link_name = "[future-read-0][method]compiled.ready"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]compiled.ready"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
        }

        pub(crate) fn from_handle(handle: i32) -> Self {
            Self(handle)
        }
    }

    impl Drop for Compiled {
        #[inline]
        fn drop(&mut self) {
            #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
            extern "C" {
                #[link_name = "[resource-drop]compiled"]
                fn drop_resource(handle: i32);
            }
            unsafe { drop_resource(self.0) }
        }
    }

    impl abi::Shape for Compiled { const SIZE: usize = 4; const ALIGN: usize = 4; const FLAT: usize = 1; }

    impl abi::Lift for Compiled {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self(abi::Lift::lift(at))
        }
    }

    impl abi::Lower for Compiled {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, _: &mut abi::Kept) {
            *(at as *mut i32) = self.0;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(self.0 as u32 as u64);
        }
    }

    /// The state of a text in a grammar.
    #[derive(Debug)]
    pub struct Matcher(i32);

    impl Matcher {
        #[inline]
        pub fn new(grammar: &crate::grammar::Compiled) -> Self {
            #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
            extern "C" {
                #[link_name = "[constructor]matcher"]
                fn call(a0: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&grammar, &mut arguments);
            unsafe { crate::grammar::Matcher::from_handle(call(arguments.i32(0))) }
        }

        /// Accepts the next tokens. Completes with false, and accepts none of them, when one does not fit.
        #[inline]
        pub fn accept(&self, tokens: &[u32]) -> crate::Pending<Result<bool, crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
            extern "C" {
                #[link_name = "[method]matcher.accept"]
                fn call(a0: i32, a1: i32, a2: i32) -> i32;
                #[link_name = "[future-read-0][method]matcher.accept"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]matcher.accept"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&tokens, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2)), read, forget) }
        }

        /// The tokens that are allowed next: bit `t % 32` of word `t / 32` for token `t`. (JavaScript guests get a word with its highest bit set as a
        /// negative number.) Masks cannot express some keywords of JSON schemas: the matcher checks these on the whole text, which may end only
        /// if it passes. `invalid-argument` when the text fails this check and cannot go on either: take tokens back with `rollback`.
        #[inline]
        pub fn mask(&self) -> crate::Pending<Result<Vec<u32>, crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
            extern "C" {
                #[link_name = "[method]matcher.mask"]
                fn call(a0: i32) -> i32;
                #[link_name = "[future-read-0][method]matcher.mask"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]matcher.mask"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
        }

        /// Tells if the text may end now, and if it must. Fails like `mask`.
        #[inline]
        pub fn status(&self) -> crate::Pending<Result<crate::grammar::MatchStatus, crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
            extern "C" {
                #[link_name = "[method]matcher.status"]
                fn call(a0: i32) -> i32;
                #[link_name = "[future-read-0][method]matcher.status"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]matcher.status"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
        }

        /// Accepts and returns the forced tokens, at most `most`: those of the text that must come next. Returns none where the grammar leaves a choice,
        /// or where the text may end. The model's tokenizer makes the tokens of the forced text. Tokens at the end of this text are left out if the
        /// text after them could change them. Append the returned tokens to the sequence and compute them in one pass, instead of sampling each.
        #[inline]
        pub fn jump(&self, most: u32) -> crate::Pending<Result<Vec<u32>, crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
            extern "C" {
                #[link_name = "[method]matcher.jump"]
                fn call(a0: i32, a1: i32) -> i32;
                #[link_name = "[future-read-0][method]matcher.jump"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]matcher.jump"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&most, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1)), read, forget) }
        }

        /// A separate matcher in the same state.
        #[must_use]
        #[inline]
        pub fn fork(&self) -> crate::grammar::Matcher {
            #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
            extern "C" {
                #[link_name = "[method]matcher.fork"]
                fn call(a0: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { crate::grammar::Matcher::from_handle(call(arguments.i32(0))) }
        }

        /// Undoes the last `tokens` accepted tokens.
        #[inline]
        pub fn rollback(&self, tokens: u32) -> crate::Pending<Result<(), crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
            extern "C" {
                #[link_name = "[method]matcher.rollback"]
                fn call(a0: i32, a1: i32) -> i32;
                #[link_name = "[future-read-0][method]matcher.rollback"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]matcher.rollback"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&tokens, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1)), read, forget) }
        }

        pub(crate) fn from_handle(handle: i32) -> Self {
            Self(handle)
        }
    }

    impl Drop for Matcher {
        #[inline]
        fn drop(&mut self) {
            #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
            extern "C" {
                #[link_name = "[resource-drop]matcher"]
                fn drop_resource(handle: i32);
            }
            unsafe { drop_resource(self.0) }
        }
    }

    impl abi::Shape for Matcher { const SIZE: usize = 4; const ALIGN: usize = 4; const FLAT: usize = 1; }

    impl abi::Lift for Matcher {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self(abi::Lift::lift(at))
        }
    }

    impl abi::Lower for Matcher {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, _: &mut abi::Kept) {
            *(at as *mut i32) = self.0;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(self.0 as u32 as u64);
        }
    }

    /// Like `fused.step`, with the matcher's mask applied to the only row of output, which must be `sample` or `distributions`. The matcher does
    /// not accept the sampled token by itself: call `accept`. The call enters its queue once the mask is known, so await it before calls that
    /// must follow it.
    #[inline]
    pub fn step(queue: &crate::queue::Queue, matcher: &crate::grammar::Matcher, request: &crate::fused::StepRequest) -> crate::Pending<Result<crate::fused::StepResult, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
        extern "C" {
            #[link_name = "step"]
            fn call(arguments: *const u8) -> i32;
            #[link_name = "[future-read-0]step"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]step"]
            fn forget(future: i32);
        }
        let mut kept = abi::Kept::new();
        let mut arguments = abi::Area::new();
        unsafe { abi::Lower::lower(&queue, arguments.at().add(0), &mut kept) };
        unsafe { abi::Lower::lower(&matcher, arguments.at().add(4), &mut kept) };
        unsafe { abi::Lower::lower(&request, arguments.at().add(8), &mut kept) };
        unsafe { abi::Pending::new(call(arguments.at()), read, forget) }
    }

    /// Like `step`, for several rows of output, and with an adapter if one is named. The inputs of all rows but the first are guesses at the
    /// tokens that follow the matcher's text. Each row has the mask of the text with all guesses up to the row's input. If a guess does not fit,
    /// its row and the rows after it have no mask. The matcher accepts none of the guesses. `limit-exceeded` for more than 64 rows.
    #[inline]
    pub fn verify(queue: &crate::queue::Queue, matcher: &crate::grammar::Matcher, adapter: Option<&str>, request: &crate::fused::StepRequest) -> crate::Pending<Result<crate::fused::StepResult, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
        extern "C" {
            #[link_name = "verify"]
            fn call(arguments: *const u8) -> i32;
            #[link_name = "[future-read-0]verify"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]verify"]
            fn forget(future: i32);
        }
        let mut kept = abi::Kept::new();
        let mut arguments = abi::Area::new();
        unsafe { abi::Lower::lower(&queue, arguments.at().add(0), &mut kept) };
        unsafe { abi::Lower::lower(&matcher, arguments.at().add(4), &mut kept) };
        unsafe { abi::Lower::lower(&adapter, arguments.at().add(8), &mut kept) };
        unsafe { abi::Lower::lower(&request, arguments.at().add(20), &mut kept) };
        unsafe { abi::Pending::new(call(arguments.at()), read, forget) }
    }

    /// A run under the matcher's masks, with its forced tokens (see `jump`). The matcher accepts the run's tokens; `invalid-argument` when other
    /// calls change the matcher meanwhile. The run ends behind the first stop token, sampled or forced. When nothing may follow, the run finishes
    /// with `stopped`. Its steps enter the queue one by one while a `next` or `pipe` is in progress, so await that call before calls that must follow
    /// the run. A `next` returns after the first step that ends 25 ms or more after `next` was called, and with at least one token. Each step counts
    /// the tokens that it computes. `limit-exceeded` for more than 8,192 pages or 262,144 stop tokens.
    #[must_use]
    #[inline]
    pub fn start_run(queue: &crate::queue::Queue, matcher: &crate::grammar::Matcher, request: &crate::fused::RunRequest) -> crate::fused::Run {
        #[link(wasm_import_module = "pie:inferlet/grammar@0.1.0")]
        extern "C" {
            #[link_name = "start-run"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32, a6: i32, a7: f32, a8: i32, a9: f32, a10: f32, a11: i32, a12: i32, a13: i32) -> i32;
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&matcher, &mut arguments);
        abi::Lower::flat(&request, &mut arguments);
        unsafe { crate::fused::Run::from_handle(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5), arguments.i32(6), arguments.f32(7), arguments.i32(8), arguments.f32(9), arguments.f32(10), arguments.i32(11), arguments.i32(12), arguments.i32(13))) }
    }
}

/// Runs that change the logits of single tokens before they sample. The sampler sees the changed distribution of the whole vocabulary.
pub mod penalties {
    use crate::abi;

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct LogitChanges {
        /// Subtracted from a token's logit once for each occurrence of the token in `chosen` or in the run; from minus to plus a million.
        pub frequency: f32,
        /// Subtracted once from the logit of each token that occurs in `chosen` or in the run; from minus to plus a million.
        pub presence: f32,
        /// Tokens whose logits get a bias; at most 1,024, otherwise `limit-exceeded`.
        pub bias_tokens: Vec<u32>,
        /// The bias of each of `bias-tokens`: from minus to plus a million, or negative infinity, which excludes the token.
        pub bias_values: Vec<f32>,
        /// The tokens that were sampled before the run, at most 8,192, otherwise `limit-exceeded`. The run itself counts the tokens that it samples.
        pub chosen: Vec<u32>,
    }

    impl abi::Shape for LogitChanges { const SIZE: usize = 32; const ALIGN: usize = 4; const FLAT: usize = 8; }

    impl abi::Lower for LogitChanges {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.frequency, at.add(0), kept);
            abi::Lower::lower(&self.presence, at.add(4), kept);
            abi::Lower::lower(&self.bias_tokens, at.add(8), kept);
            abi::Lower::lower(&self.bias_values, at.add(16), kept);
            abi::Lower::lower(&self.chosen, at.add(24), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.frequency, to);
            abi::Lower::flat(&self.presence, to);
            abi::Lower::flat(&self.bias_tokens, to);
            abi::Lower::flat(&self.bias_values, to);
            abi::Lower::flat(&self.chosen, to);
        }
    }

    /// Like `fused.run`. `temperature` 0 takes the most probable token after the changes. The run fails with `invalid-argument` when the changes
    /// exclude all tokens.
    #[must_use]
    #[inline]
    pub fn start_run(queue: &crate::queue::Queue, request: &crate::fused::RunRequest, changes: &crate::penalties::LogitChanges) -> crate::fused::Run {
        #[link(wasm_import_module = "pie:inferlet/penalties@0.1.0")]
        extern "C" {
            #[link_name = "start-run"]
            fn call(arguments: *const u8) -> i32;
        }
        let mut kept = abi::Kept::new();
        let mut arguments = abi::Area::new();
        unsafe { abi::Lower::lower(&queue, arguments.at().add(0), &mut kept) };
        unsafe { abi::Lower::lower(&request, arguments.at().add(4), &mut kept) };
        unsafe { abi::Lower::lower(&changes, arguments.at().add(52), &mut kept) };
        unsafe { crate::fused::Run::from_handle(call(arguments.at())) }
    }
}

/// Attention scores, for strategies that evict tokens with little attention. A forward that returns scores computes its attention a second
/// time, and runs in separate batches.
pub mod introspect {
    use crate::abi;

    /// Like `forward`. Completes with the attention that each slot received, summed over the inputs and averaged over layers and heads: first
    /// `page-size` numbers for each of `in-pages` (0 for empty and masked slots), then one number for each input. The numbers add up to the
    /// number of inputs.
    #[inline]
    pub fn forward_scores(queue: &crate::queue::Queue, in_pages: &[u32], in_embeds: &[u32], out_pages: &[u32], out_embeds: &[u32], mask: Option<&crate::forward::Mask>) -> crate::Pending<Result<Vec<f32>, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/introspect@0.1.0")]
        extern "C" {
            #[link_name = "forward-scores"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32, a6: i32, a7: i32, a8: i32, a9: i32, a10: i32, a11: i32, a12: i32, a13: i32) -> i32;
            #[link_name = "[future-read-0]forward-scores"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]forward-scores"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&in_pages, &mut arguments);
        abi::Lower::flat(&in_embeds, &mut arguments);
        abi::Lower::flat(&out_pages, &mut arguments);
        abi::Lower::flat(&out_embeds, &mut arguments);
        abi::Lower::flat(&mask, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5), arguments.i32(6), arguments.i32(7), arguments.i32(8), arguments.i32(9), arguments.i32(10), arguments.i32(11), arguments.i32(12), arguments.i32(13)), read, forget) }
    }
}

/// The KV cache as files (Symphony, HotOS '25). A file is a sequence of tokens' keys and values for one model, with or without a name. An
/// inferlet that opens a name sees the content that was saved last. An inferlet that holds the lock of a name may save new content. Names
/// belong to a tenant. Operators write the names under `system/`, and every tenant can read them. An opened file shares its pages, so opening
/// and saving cost one round trip, independent of the number of tokens.
pub mod kv_files {
    use crate::abi;

    #[derive(Debug, Clone, PartialEq, Copy, Eq)]
    pub enum Access {
        /// A private view. Pages are copied on write.
        Read,
        /// A view with the file's lock, which allows saving. `unavailable` while another inferlet holds the lock. An inferlet may open a name for
        /// writing several times; the lock is released with the last of these files.
        Write,
    }

    impl abi::Shape for Access { const SIZE: usize = 1; const ALIGN: usize = 1; const FLAT: usize = 1; }

    impl abi::Lower for Access {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            let _ = kept;
            *(at as *mut u8) = *self as u8;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(*self as u64);
        }
    }

    /// Rights of the tenant's other inferlets on a file.
    #[derive(Debug, Clone, PartialEq, Copy, Eq)]
    pub enum Rights {
        Private,
        Readable,
        Writable,
    }

    impl abi::Shape for Rights { const SIZE: usize = 1; const ALIGN: usize = 1; const FLAT: usize = 1; }

    impl abi::Lift for Rights {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            match *(at as *const u8) {
                0 => Self::Private,
                1 => Self::Readable,
                2 => Self::Writable,
                _ => abi::wrong_tag(),
            }
        }
    }

    impl abi::Lower for Rights {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            let _ = kept;
            *(at as *mut u8) = *self as u8;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(*self as u64);
        }
    }

    #[derive(Debug, Clone, PartialEq)]
    pub struct FileInfo {
        pub name: String,
        pub tokens: u32,
        pub next_position: u32,
        pub persistent: bool,
        pub rights: crate::kv_files::Rights,
        /// The function that created the file.
        pub owner: String,
        pub locked: bool,
    }

    impl abi::Shape for FileInfo { const SIZE: usize = 32; const ALIGN: usize = 4; const FLAT: usize = 9; }

    impl abi::Lift for FileInfo {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                name: abi::Lift::lift(at.add(0)),
                tokens: abi::Lift::lift(at.add(8)),
                next_position: abi::Lift::lift(at.add(12)),
                persistent: abi::Lift::lift(at.add(16)),
                rights: abi::Lift::lift(at.add(17)),
                owner: abi::Lift::lift(at.add(20)),
                locked: abi::Lift::lift(at.add(28)),
            }
        }
    }

    #[derive(Debug)]
    pub struct File(i32);

    impl File {
        /// Opens `name`, or creates a file without a name when `name` is none. `ready` reports failures. The calls of the file run on `queue`.
        /// Calls made before the file is ready wait until it is.
        #[inline]
        pub fn new(queue: &crate::queue::Queue, name: Option<&str>, access: crate::kv_files::Access) -> Self {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[constructor]file"]
                fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&queue, &mut arguments);
            abi::Lower::flat(&name, &mut arguments);
            abi::Lower::flat(&access, &mut arguments);
            unsafe { crate::kv_files::File::from_handle(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4))) }
        }

        /// Completes when the file is usable. Fails with `not-found`, `unsupported` (no right) or `unavailable` (locked).
        #[inline]
        pub fn ready(&self) -> crate::Pending<Result<(), crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[method]file.ready"]
                fn call(a0: i32) -> i32;
                #[link_name = "[future-read-0][method]file.ready"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]file.ready"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
        }

        /// Number of tokens; known once the file is ready.
        #[must_use]
        #[inline]
        pub fn tokens(&self) -> u32 {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[method]file.tokens"]
                fn call(a0: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { call(arguments.i32(0)) as u32 }
        }

        /// The first free position: no token is at this position or after it. Known once the file is ready.
        #[must_use]
        #[inline]
        pub fn next_position(&self) -> u32 {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[method]file.next-position"]
                fn call(a0: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { call(arguments.i32(0)) as u32 }
        }

        /// The pages of the file, for `forward` and `fused` to read.
        #[must_use]
        #[inline]
        pub fn pages(&self) -> Vec<u32> {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[method]file.pages"]
                fn call(a0: i32, result: *mut u8);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            let mut result = abi::Area::new();
            unsafe { call(arguments.i32(0), result.at()) };
            unsafe { abi::Lift::lift(result.at()) }
        }

        /// The pages of the file with empty slots for `tokens` more tokens after the filled slots, for `forward` and `fused` to fill. Then call
        /// `filled`: the file itself does not count the tokens that these calls write. `unavailable` until the file is ready; `limit-exceeded` when the
        /// pages would exceed the invocation's page limit.
        #[inline]
        pub fn reserve(&self, tokens: u32) -> Result<Vec<u32>, crate::types::Error> {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[method]file.reserve"]
                fn call(a0: i32, a1: i32, result: *mut u8);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&tokens, &mut arguments);
            let mut result = abi::Area::new();
            unsafe { call(arguments.i32(0), arguments.i32(1), result.at()) };
            unsafe { abi::Lift::lift(result.at()) }
        }

        /// Adds `tokens` that `forward` or `fused` wrote into the reserved slots to the file. `next-position` is the first position after them.
        #[inline]
        pub fn filled(&self, tokens: u32, next_position: u32) {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[method]file.filled"]
                fn call(a0: i32, a1: i32, a2: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&tokens, &mut arguments);
            abi::Lower::flat(&next_position, &mut arguments);
            unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2)) }
        }

        /// Computes tokens, appends them, and returns for each token the distribution of the next token: its `top-k` most probable tokens (1 to the
        /// host's cap of 256).
        #[inline]
        pub fn pred(&self, tokens: &[u32], positions: &[u32], top_k: u32) -> crate::Pending<Result<Vec<crate::output_text::Distribution>, crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[method]file.pred"]
                fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32) -> i32;
                #[link_name = "[future-read-0][method]file.pred"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]file.pred"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&tokens, &mut arguments);
            abi::Lower::flat(&positions, &mut arguments);
            abi::Lower::flat(&top_k, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5)), read, forget) }
        }

        /// A file without a name and with the same content. Pages are copied on write.
        #[must_use]
        #[inline]
        pub fn fork(&self) -> crate::kv_files::File {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[method]file.fork"]
                fn call(a0: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { crate::kv_files::File::from_handle(call(arguments.i32(0))) }
        }

        /// A file without a name that holds the tokens at `indices`, in this order. With `renumber`, their positions become `renumber`,
        /// `renumber + 1`, … and their keys are rotated accordingly; otherwise the tokens keep their positions. `ready` reports failures:
        /// `invalid-argument` for an index without a token, `limit-exceeded` for more tokens than the invocation's pages hold, and, like
        /// `synchronize`, the first error of the queue.
        #[must_use]
        #[inline]
        pub fn extract(&self, indices: &[u32], renumber: Option<u32>) -> crate::kv_files::File {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[method]file.extract"]
                fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&indices, &mut arguments);
            abi::Lower::flat(&renumber, &mut arguments);
            unsafe { crate::kv_files::File::from_handle(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4))) }
        }

        /// Appends the tokens of another file of the same model. They are renumbered to follow this file's tokens, unless `keep-positions` is set.
        /// Like `synchronize`, `merge` reports the first error of the queue.
        #[inline]
        pub fn merge(&self, other: &crate::kv_files::File, keep_positions: bool) -> crate::Pending<Result<(), crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[method]file.merge"]
                fn call(a0: i32, a1: i32, a2: i32) -> i32;
                #[link_name = "[future-read-0][method]file.merge"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]file.merge"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&other, &mut arguments);
            abi::Lower::flat(&keep_positions, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2)), read, forget) }
        }

        /// Saves the file under its own name, which needs the lock, or under a new name. `invalid-argument` when another file has the name.
        #[inline]
        pub fn save(&self, name: &str, persistent: bool, rights: crate::kv_files::Rights) -> crate::Pending<Result<(), crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[method]file.save"]
                fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32) -> i32;
                #[link_name = "[future-read-0][method]file.save"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]file.save"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&name, &mut arguments);
            abi::Lower::flat(&persistent, &mut arguments);
            abi::Lower::flat(&rights, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4)), read, forget) }
        }

        /// Releases the lock. Dropping the file does the same.
        #[inline]
        pub fn unlock(&self) {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[method]file.unlock"]
                fn call(a0: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { call(arguments.i32(0)) }
        }

        pub(crate) fn from_handle(handle: i32) -> Self {
            Self(handle)
        }
    }

    impl Drop for File {
        #[inline]
        fn drop(&mut self) {
            #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
            extern "C" {
                #[link_name = "[resource-drop]file"]
                fn drop_resource(handle: i32);
            }
            unsafe { drop_resource(self.0) }
        }
    }

    impl abi::Shape for File { const SIZE: usize = 4; const ALIGN: usize = 4; const FLAT: usize = 1; }

    impl abi::Lift for File {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self(abi::Lift::lift(at))
        }
    }

    impl abi::Lower for File {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, _: &mut abi::Kept) {
            *(at as *mut i32) = self.0;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(self.0 as u32 as u64);
        }
    }

    /// Copies the content that was saved last under a name to the storage that the platform's machines share. While the GPU host that keeps the name
    /// and its lock is away or lost, inferlets on other hosts can then open the name for reading. A later save or `remove` ends the copy. Needs the
    /// right to write the file. Fails as `make-durable` of `allocate` does.
    #[inline]
    pub fn make_durable(queue: &crate::queue::Queue, name: &str) -> crate::Pending<Result<(), crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
        extern "C" {
            #[link_name = "make-durable"]
            fn call(a0: i32, a1: i32, a2: i32) -> i32;
            #[link_name = "[future-read-0]make-durable"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]make-durable"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&name, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2)), read, forget) }
    }

    /// Removes a name. Inferlets that have opened it keep their content.
    #[inline]
    pub fn remove(queue: &crate::queue::Queue, name: &str) -> crate::Pending<Result<(), crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
        extern "C" {
            #[link_name = "remove"]
            fn call(a0: i32, a1: i32, a2: i32) -> i32;
            #[link_name = "[future-read-0]remove"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]remove"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&name, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2)), read, forget) }
    }

    /// Files of the queue's model whose names begin with `prefix`, ordered by name.
    #[inline]
    pub fn files(queue: &crate::queue::Queue, prefix: &str) -> crate::Pending<Result<Vec<crate::kv_files::FileInfo>, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/kv-files@0.1.0")]
        extern "C" {
            #[link_name = "files"]
            fn call(a0: i32, a1: i32, a2: i32) -> i32;
            #[link_name = "[future-read-0]files"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]files"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&prefix, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2)), read, forget) }
    }
}

/// Encodes images into embeds, for models with a vision encoder.
pub mod input_image {
    use crate::abi;

    /// The size of an image in pixels.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Dimensions {
        pub width: u32,
        pub height: u32,
    }

    impl abi::Shape for Dimensions { const SIZE: usize = 8; const ALIGN: usize = 4; const FLAT: usize = 2; }

    impl abi::Lift for Dimensions {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                width: abi::Lift::lift(at.add(0)),
                height: abi::Lift::lift(at.add(4)),
            }
        }
    }

    impl abi::Lower for Dimensions {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.width, at.add(0), kept);
            abi::Lower::lower(&self.height, at.add(4), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.width, to);
            abi::Lower::flat(&self.height, to);
        }
    }

    /// The size of a PNG or JPEG image, read from its first bytes. `invalid-argument` for other data.
    #[inline]
    pub fn image_dimensions(image: &[u8]) -> Result<crate::input_image::Dimensions, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/input-image@0.1.0")]
        extern "C" {
            #[link_name = "image-dimensions"]
            fn call(a0: i32, a1: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&image, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// The number of embeds that an image of this size takes on the queue's model. `unsupported` when the model does not have the trait
    /// `input-image`, `invalid-argument` when the image has too many pixels.
    #[inline]
    pub fn image_embeds(queue: &crate::queue::Queue, size: &crate::input_image::Dimensions) -> Result<u32, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/input-image@0.1.0")]
        extern "C" {
            #[link_name = "image-embeds"]
            fn call(a0: i32, a1: i32, a2: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&size, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// The token that a model's chat template writes in place of an image (LLaVA: `<image>`). `unsupported` when the model does not have the trait
    /// `input-image`, or when its config names no such token.
    #[inline]
    pub fn image_token(model: &str) -> Result<u32, crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/input-image@0.1.0")]
        extern "C" {
            #[link_name = "image-token"]
            fn call(a0: i32, a1: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&model, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// Encodes a PNG or JPEG image (at most 8 MiB and 16 million pixels) into `embeds`, at `positions`. `image-embeds` tells how many embeds are
    /// needed. The call costs a pass of the vision encoder, about as much as a prefill of the same number of tokens.
    #[inline]
    pub fn embed_image(queue: &crate::queue::Queue, image: &[u8], positions: &[u32], embeds: &[u32]) -> crate::Pending<Result<(), crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/input-image@0.1.0")]
        extern "C" {
            #[link_name = "embed-image"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32, a6: i32) -> i32;
            #[link_name = "[future-read-0]embed-image"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]embed-image"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&image, &mut arguments);
        abi::Lower::flat(&positions, &mut arguments);
        abi::Lower::flat(&embeds, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5), arguments.i32(6)), read, forget) }
    }
}

/// Low-rank adapters (Hu et al., LoRA, 2021) that the platform's operator installed beside a model. Calls share the keys and values of equal
/// prefixes only with calls of the same adapter; calls without an adapter share them among themselves.
pub mod adapter {
    use crate::abi;

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct AdapterInfo {
        pub name: String,
        pub rank: u32,
        /// True when the adapter is in the device's memory.
        pub loaded: bool,
    }

    impl abi::Shape for AdapterInfo { const SIZE: usize = 16; const ALIGN: usize = 4; const FLAT: usize = 4; }

    impl abi::Lift for AdapterInfo {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                name: abi::Lift::lift(at.add(0)),
                rank: abi::Lift::lift(at.add(8)),
                loaded: abi::Lift::lift(at.add(12)),
            }
        }
    }

    /// The adapters of the queue's model, ordered by name.
    #[inline]
    pub fn list_adapters(queue: &crate::queue::Queue) -> crate::Pending<Result<Vec<crate::adapter::AdapterInfo>, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/adapter@0.1.0")]
        extern "C" {
            #[link_name = "list-adapters"]
            fn call(a0: i32) -> i32;
            #[link_name = "[future-read-0]list-adapters"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]list-adapters"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
    }

    /// Loads an adapter into the device's memory, so that the first call with the adapter need not wait for it. `not-found` when no adapter
    /// has this name, `invalid-argument` for a malformed name.
    #[inline]
    pub fn load_adapter(queue: &crate::queue::Queue, name: &str) -> crate::Pending<Result<(), crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/adapter@0.1.0")]
        extern "C" {
            #[link_name = "load-adapter"]
            fn call(a0: i32, a1: i32, a2: i32) -> i32;
            #[link_name = "[future-read-0]load-adapter"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]load-adapter"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&name, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2)), read, forget) }
    }

    /// Like `forward`, with the adapter's matrices added to those of the model. Calls with different adapters share a batch only if the
    /// backend supports this.
    #[inline]
    pub fn forward_with_adapter(queue: &crate::queue::Queue, adapter: &str, in_pages: &[u32], in_embeds: &[u32], out_pages: &[u32], out_embeds: &[u32], mask: Option<&crate::forward::Mask>) {
        #[link(wasm_import_module = "pie:inferlet/adapter@0.1.0")]
        extern "C" {
            #[link_name = "forward-with-adapter"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32, a6: i32, a7: i32, a8: i32, a9: i32, a10: i32, a11: i32, a12: i32, a13: i32, a14: i32, a15: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&queue, &mut arguments);
        abi::Lower::flat(&adapter, &mut arguments);
        abi::Lower::flat(&in_pages, &mut arguments);
        abi::Lower::flat(&in_embeds, &mut arguments);
        abi::Lower::flat(&out_pages, &mut arguments);
        abi::Lower::flat(&out_embeds, &mut arguments);
        abi::Lower::flat(&mask, &mut arguments);
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5), arguments.i32(6), arguments.i32(7), arguments.i32(8), arguments.i32(9), arguments.i32(10), arguments.i32(11), arguments.i32(12), arguments.i32(13), arguments.i32(14), arguments.i32(15)) }
    }

    /// Like `fused.step`, with the adapter.
    #[inline]
    pub fn step(queue: &crate::queue::Queue, adapter: &str, request: &crate::fused::StepRequest) -> crate::Pending<Result<crate::fused::StepResult, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/adapter@0.1.0")]
        extern "C" {
            #[link_name = "step"]
            fn call(arguments: *const u8) -> i32;
            #[link_name = "[future-read-0]step"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]step"]
            fn forget(future: i32);
        }
        let mut kept = abi::Kept::new();
        let mut arguments = abi::Area::new();
        unsafe { abi::Lower::lower(&queue, arguments.at().add(0), &mut kept) };
        unsafe { abi::Lower::lower(&adapter, arguments.at().add(4), &mut kept) };
        unsafe { abi::Lower::lower(&request, arguments.at().add(12), &mut kept) };
        unsafe { abi::Pending::new(call(arguments.at()), read, forget) }
    }
}

/// Turns texts into vectors with an encoder: texts of like meaning have vectors of like direction. Needs no queue and no pages.
pub mod embedding {
    use crate::abi;

    /// A model that encodes texts.
    #[derive(Debug, Clone, PartialEq)]
    pub struct EncoderInfo {
        pub name: String,
        pub kind: crate::embedding::EncoderKind,
        /// Number of values of a vector; 1 for a reranker.
        pub size: u32,
        /// Maximum tokens of a text, or for a reranker of a query and a document together, special tokens included.
        pub context_length: u32,
    }

    impl abi::Shape for EncoderInfo { const SIZE: usize = 20; const ALIGN: usize = 4; const FLAT: usize = 5; }

    impl abi::Lift for EncoderInfo {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                name: abi::Lift::lift(at.add(0)),
                kind: abi::Lift::lift(at.add(8)),
                size: abi::Lift::lift(at.add(12)),
                context_length: abi::Lift::lift(at.add(16)),
            }
        }
    }

    /// `embed` takes models of the kind `embedding`, `rerank` those of the kind `reranker`.
    #[derive(Debug, Clone, PartialEq, Copy, Eq)]
    pub enum EncoderKind {
        Embedding,
        Reranker,
    }

    impl abi::Shape for EncoderKind { const SIZE: usize = 1; const ALIGN: usize = 1; const FLAT: usize = 1; }

    impl abi::Lift for EncoderKind {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            match *(at as *const u8) {
                0 => Self::Embedding,
                1 => Self::Reranker,
                _ => abi::wrong_tag(),
            }
        }
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Vectors {
        /// Number of values of each vector.
        pub size: u32,
        /// The vectors of all texts, one after the other, in the order of the texts.
        pub values: Vec<f32>,
        /// Tokens that were encoded.
        pub tokens: u32,
        /// Number of texts that were longer than the model takes: their ends were left out.
        pub cut: u32,
    }

    impl abi::Shape for Vectors { const SIZE: usize = 20; const ALIGN: usize = 4; const FLAT: usize = 5; }

    impl abi::Lift for Vectors {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                size: abi::Lift::lift(at.add(0)),
                values: abi::Lift::lift(at.add(4)),
                tokens: abi::Lift::lift(at.add(12)),
                cut: abi::Lift::lift(at.add(16)),
            }
        }
    }

    /// The encoders that the function was granted.
    #[must_use]
    #[inline]
    pub fn encoders() -> Vec<crate::embedding::EncoderInfo> {
        #[link(wasm_import_module = "pie:inferlet/embedding@0.1.0")]
        extern "C" {
            #[link_name = "encoders"]
            fn call(result: *mut u8);
        }
        let mut result = abi::Area::new();
        unsafe { call(result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// The vectors of up to 256 texts of up to 262,144 characters in all. An empty name selects the first embedding model. The call costs a pass
    /// of the encoder; texts of many inferlets are computed together. Dropping the future before its value is there ends the call: texts that the
    /// device has not begun are not computed.
    #[inline]
    pub fn embed(model: &str, texts: &[&str]) -> crate::Pending<Result<crate::embedding::Vectors, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/embedding@0.1.0")]
        extern "C" {
            #[link_name = "embed"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32) -> i32;
            #[link_name = "[future-read-0]embed"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]embed"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&model, &mut arguments);
        abi::Lower::flat(&texts, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3)), read, forget) }
    }
}

/// Scores how well documents answer a query, with an encoder that reads both together. Needs no queue and no pages.
pub mod rerank {
    use crate::abi;

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Scores {
        /// One number for each document, in the order of the documents: larger is better. Compare a number only with others of the same
        /// model. For most models, the logistic function of the number is a probability.
        pub values: Vec<f32>,
        /// Tokens that were encoded.
        pub tokens: u32,
        /// Number of pairs of query and document that were longer than the model takes: the end of the pair's longer text was left out.
        pub cut: u32,
    }

    impl abi::Shape for Scores { const SIZE: usize = 16; const ALIGN: usize = 4; const FLAT: usize = 4; }

    impl abi::Lift for Scores {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                values: abi::Lift::lift(at.add(0)),
                tokens: abi::Lift::lift(at.add(8)),
                cut: abi::Lift::lift(at.add(12)),
            }
        }
    }

    /// The scores of up to 256 documents of up to 262,144 characters in all, with the query counted once for each document. An empty name selects
    /// the first reranker. Dropping the future ends the call, as for `embed`.
    #[inline]
    pub fn rerank(model: &str, query: &str, documents: &[&str]) -> crate::Pending<Result<crate::rerank::Scores, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/rerank@0.1.0")]
        extern "C" {
            #[link_name = "rerank"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32) -> i32;
            #[link_name = "[future-read-0]rerank"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]rerank"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&model, &mut arguments);
        abi::Lower::flat(&query, &mut arguments);
        abi::Lower::flat(&documents, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5)), read, forget) }
    }
}

/// Durable indexes of the tenant, which find entries by meaning, by words, or by both. All functions with the grant `store` share the indexes
/// (manifest: `grants.store`). Without this grant, every call fails with `unsupported`. When the grant is `read`, the calls that write fail with
/// `unsupported`. The name of an index has 1 to 128 letters, digits, dots, hyphens and underscores, and does not begin with a dot. While the index
/// host restarts, calls fail with `unavailable`: call again later. A write that fails with `unavailable` may still have taken effect.
pub mod index {
    use crate::abi;

    /// Measure of how near two vectors are. `cosine` is the cosine of the angle between them, `dot-product` is their dot product, and `euclidean` is
    /// the negative square of their distance.
    #[derive(Debug, Clone, PartialEq, Copy, Eq)]
    pub enum Metric {
        Cosine,
        DotProduct,
        Euclidean,
    }

    impl abi::Shape for Metric { const SIZE: usize = 1; const ALIGN: usize = 1; const FLAT: usize = 1; }

    impl abi::Lift for Metric {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            match *(at as *const u8) {
                0 => Self::Cosine,
                1 => Self::DotProduct,
                2 => Self::Euclidean,
                _ => abi::wrong_tag(),
            }
        }
    }

    impl abi::Lower for Metric {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            let _ = kept;
            *(at as *mut u8) = *self as u8;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(*self as u64);
        }
    }

    #[derive(Debug, Clone, PartialEq)]
    pub enum Value {
        Text(String),
        Number(f64),
        Boolean(bool),
    }

    impl abi::Shape for Value { const SIZE: usize = 16; const ALIGN: usize = 8; const FLAT: usize = 3; }

    impl abi::Lift for Value {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            match *(at as *const u8) {
                0 => Self::Text(abi::Lift::lift(at.add(8))),
                1 => Self::Number(abi::Lift::lift(at.add(8))),
                2 => Self::Boolean(abi::Lift::lift(at.add(8))),
                _ => abi::wrong_tag(),
            }
        }
    }

    impl abi::Lower for Value {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            match self {
                Self::Text(value) => { *(at as *mut u8) = 0; abi::Lower::lower(value, at.add(8), kept) }
                Self::Number(value) => { *(at as *mut u8) = 1; abi::Lower::lower(value, at.add(8), kept) }
                Self::Boolean(value) => { *(at as *mut u8) = 2; abi::Lower::lower(value, at.add(8), kept) }
            }
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            let end = to.count() + <Self as abi::Shape>::FLAT;
            match self {
                Self::Text(value) => { to.push(0); abi::Lower::flat(value, to) }
                Self::Number(value) => { to.push(1); abi::Lower::flat(value, to) }
                Self::Boolean(value) => { to.push(2); abi::Lower::flat(value, to) }
            }
            to.pad(end);
        }
    }

    #[derive(Debug, Clone, PartialEq)]
    pub struct Field {
        pub name: String,
        pub value: crate::index::Value,
    }

    impl abi::Shape for Field { const SIZE: usize = 24; const ALIGN: usize = 8; const FLAT: usize = 5; }

    impl abi::Lift for Field {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                name: abi::Lift::lift(at.add(0)),
                value: abi::Lift::lift(at.add(8)),
            }
        }
    }

    impl abi::Lower for Field {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.name, at.add(0), kept);
            abi::Lower::lower(&self.value, at.add(8), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.name, to);
            abi::Lower::flat(&self.value, to);
        }
    }

    /// An entry without its vector, which `upsert` takes separately. The id has 1 to 512 bytes, and the text at most 64 KiB. An entry has at most 32
    /// fields. The name of a field has 1 to 64 bytes, and a text as its value at most 1,024 bytes.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct IndexEntry {
        pub id: String,
        /// A text that queries find by its words. The index does not compute the vector from the text.
        pub text: Option<String>,
        pub fields: Vec<crate::index::Field>,
    }

    impl abi::Shape for IndexEntry { const SIZE: usize = 28; const ALIGN: usize = 4; const FLAT: usize = 7; }

    impl abi::Lift for IndexEntry {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                id: abi::Lift::lift(at.add(0)),
                text: abi::Lift::lift(at.add(8)),
                fields: abi::Lift::lift(at.add(20)),
            }
        }
    }

    impl abi::Lower for IndexEntry {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.id, at.add(0), kept);
            abi::Lower::lower(&self.text, at.add(8), kept);
            abi::Lower::lower(&self.fields, at.add(20), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.id, to);
            abi::Lower::flat(&self.text, to);
            abi::Lower::flat(&self.fields, to);
        }
    }

    /// `equal` holds when the field has one of the values. `not-equal` holds when the field has none of the values, or is missing. The other
    /// comparisons take one value, a text or a number. They hold only for fields whose value is of the same kind. Texts are compared byte by byte.
    #[derive(Debug, Clone, PartialEq, Copy, Eq)]
    pub enum Comparison {
        Equal,
        NotEqual,
        Less,
        AtMost,
        Greater,
        AtLeast,
    }

    impl abi::Shape for Comparison { const SIZE: usize = 1; const ALIGN: usize = 1; const FLAT: usize = 1; }

    impl abi::Lower for Comparison {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            let _ = kept;
            *(at as *mut u8) = *self as u8;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(*self as u64);
        }
    }

    /// A condition on one field of an entry.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Condition {
        pub field: String,
        pub comparison: crate::index::Comparison,
        pub values: Vec<crate::index::Value>,
    }

    impl abi::Shape for Condition { const SIZE: usize = 20; const ALIGN: usize = 4; const FLAT: usize = 5; }

    impl abi::Lower for Condition {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.field, at.add(0), kept);
            abi::Lower::lower(&self.comparison, at.add(8), kept);
            abi::Lower::lower(&self.values, at.add(12), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.field, to);
            abi::Lower::flat(&self.comparison, to);
            abi::Lower::flat(&self.values, to);
        }
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Match {
        pub entry: crate::index::IndexEntry,
        /// Larger is better. A query by vector scores an entry by the metric of the index, and a query by words by BM25. A query by both makes one
        /// ranking for each. An entry scores the sum of 1 / (60 + rank) over the rankings that contain it; the best rank is 1.
        pub score: f64,
    }

    impl abi::Shape for Match { const SIZE: usize = 40; const ALIGN: usize = 8; const FLAT: usize = 8; }

    impl abi::Lift for Match {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                entry: abi::Lift::lift(at.add(0)),
                score: abi::Lift::lift(at.add(32)),
            }
        }
    }

    #[derive(Debug, Clone, PartialEq)]
    pub struct IndexInfo {
        pub name: String,
        pub dimensions: u32,
        pub metric: crate::index::Metric,
        pub entries: u64,
        /// Bytes of the index that count towards the tenant's limits and storage quota.
        pub bytes: u64,
    }

    impl abi::Shape for IndexInfo { const SIZE: usize = 32; const ALIGN: usize = 8; const FLAT: usize = 6; }

    impl abi::Lift for IndexInfo {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                name: abi::Lift::lift(at.add(0)),
                dimensions: abi::Lift::lift(at.add(8)),
                metric: abi::Lift::lift(at.add(12)),
                entries: abi::Lift::lift(at.add(16)),
                bytes: abi::Lift::lift(at.add(24)),
            }
        }
    }

    /// Makes an index for vectors of 1 to 4,096 values. When the tenant already has an index of this name with the same dimensions and metric, that
    /// index stays as it is. When its dimensions or metric differ, the call fails with `invalid-argument`.
    #[inline]
    pub fn create(name: &str, dimensions: u32, metric: crate::index::Metric) -> crate::Pending<Result<crate::index::IndexInfo, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/index@0.1.0")]
        extern "C" {
            #[link_name = "create"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32) -> i32;
            #[link_name = "[future-read-0]create"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]create"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&name, &mut arguments);
        abi::Lower::flat(&dimensions, &mut arguments);
        abi::Lower::flat(&metric, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3)), read, forget) }
    }

    /// Stores up to 256 entries, all or none. An entry replaces an earlier entry with the same id. `vectors` has the vectors of all entries one after
    /// the other, in the order of `entries`. Entries and vectors together have at most 4 MiB. Fails with `limit-exceeded` when the tenant's indexes
    /// have no room.
    #[inline]
    pub fn upsert(name: &str, entries: &[crate::index::IndexEntry], vectors: &[f32]) -> crate::Pending<Result<(), crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/index@0.1.0")]
        extern "C" {
            #[link_name = "upsert"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32) -> i32;
            #[link_name = "[future-read-0]upsert"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]upsert"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&name, &mut arguments);
        abi::Lower::flat(&entries, &mut arguments);
        abi::Lower::flat(&vectors, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5)), read, forget) }
    }

    /// Deletes up to 256 entries by their ids. Ignores ids that have no entry. Completes with the number of deleted entries.
    #[inline]
    pub fn delete_entries(name: &str, ids: &[&str]) -> crate::Pending<Result<u32, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/index@0.1.0")]
        extern "C" {
            #[link_name = "delete-entries"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32) -> i32;
            #[link_name = "[future-read-0]delete-entries"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]delete-entries"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&name, &mut arguments);
        abi::Lower::flat(&ids, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3)), read, forget) }
    }

    /// The best entries that fulfil all conditions of `filter`, the best one first. `limit` is the maximum number of entries, 1 to 256. A filter has at
    /// most 16 conditions with at most 64 values each. A query needs a vector, a text of at most 8,192 bytes, or both. A text finds entries that have
    /// any of its first 16 words. In a large index, only the rarer of these words count, and the search for the nearest vectors is approximate: it
    /// misses about one in a hundred.
    #[inline]
    pub fn query(name: &str, vector: Option<&[f32]>, text: Option<&str>, filter: &[crate::index::Condition], limit: u32) -> crate::Pending<Result<Vec<crate::index::Match>, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/index@0.1.0")]
        extern "C" {
            #[link_name = "query"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32, a6: i32, a7: i32, a8: i32, a9: i32, a10: i32) -> i32;
            #[link_name = "[future-read-0]query"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]query"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&name, &mut arguments);
        abi::Lower::flat(&vector, &mut arguments);
        abi::Lower::flat(&text, &mut arguments);
        abi::Lower::flat(&filter, &mut arguments);
        abi::Lower::flat(&limit, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5), arguments.i32(6), arguments.i32(7), arguments.i32(8), arguments.i32(9), arguments.i32(10)), read, forget) }
    }

    /// Describes one index.
    #[inline]
    pub fn stats(name: &str) -> crate::Pending<Result<crate::index::IndexInfo, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/index@0.1.0")]
        extern "C" {
            #[link_name = "stats"]
            fn call(a0: i32, a1: i32) -> i32;
            #[link_name = "[future-read-0]stats"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]stats"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&name, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1)), read, forget) }
    }

    /// Describes all indexes of the tenant, ordered by name.
    #[inline]
    pub fn list_indexes() -> crate::Pending<Result<Vec<crate::index::IndexInfo>, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/index@0.1.0")]
        extern "C" {
            #[link_name = "list-indexes"]
            fn call() -> i32;
            #[link_name = "[future-read-0]list-indexes"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]list-indexes"]
            fn forget(future: i32);
        }
        unsafe { abi::Pending::new(call(), read, forget) }
    }

    /// Deletes an index with its entries. Completes with false when there was no such index.
    #[inline]
    pub fn drop_index(name: &str) -> crate::Pending<Result<bool, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/index@0.1.0")]
        extern "C" {
            #[link_name = "drop-index"]
            fn call(a0: i32, a1: i32) -> i32;
            #[link_name = "[future-read-0]drop-index"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]drop-index"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&name, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1)), read, forget) }
    }
}

/// Durable values by key, shared by a tenant's functions that have the grant `store` (manifest: `grants.store`). Without the grant every call
/// fails with `unsupported`; with the grant `read`, so do the calls that write. Keys have 1 to 512 bytes of UTF-8, values at most 1 MiB.
/// `limit-exceeded` when the tenant's store is full. A call costs one round trip to the platform's store, about 0.2 ms.
pub mod store {
    use crate::abi;

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Entry {
        pub value: Vec<u8>,
        /// Grows with every write of the key. `compare-and-set` compares it.
        pub version: u64,
    }

    impl abi::Shape for Entry { const SIZE: usize = 16; const ALIGN: usize = 8; const FLAT: usize = 3; }

    impl abi::Lift for Entry {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                value: abi::Lift::lift(at.add(0)),
                version: abi::Lift::lift(at.add(8)),
            }
        }
    }

    /// The value of a key, or none.
    #[inline]
    pub fn get(key: &str) -> crate::Pending<Result<Option<crate::store::Entry>, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/store@0.1.0")]
        extern "C" {
            #[link_name = "get"]
            fn call(a0: i32, a1: i32) -> i32;
            #[link_name = "[future-read-0]get"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]get"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&key, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1)), read, forget) }
    }

    /// Writes a value over any earlier one. Completes with its version. The store deletes the value after `time-to-live` seconds, if given.
    #[inline]
    pub fn set(key: &str, value: &[u8], time_to_live: Option<u32>) -> crate::Pending<Result<u64, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/store@0.1.0")]
        extern "C" {
            #[link_name = "set"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32) -> i32;
            #[link_name = "[future-read-0]set"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]set"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&key, &mut arguments);
        abi::Lower::flat(&value, &mut arguments);
        abi::Lower::flat(&time_to_live, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5)), read, forget) }
    }

    /// Writes a value if the key has the version `expected` (none: if the key has no value). Completes with the new version, or with none when
    /// the version differs: read the value again. The key keeps its time to live.
    #[inline]
    pub fn compare_and_set(key: &str, expected: Option<u64>, value: &[u8]) -> crate::Pending<Result<Option<u64>, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/store@0.1.0")]
        extern "C" {
            #[link_name = "compare-and-set"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i64, a4: i32, a5: i32) -> i32;
            #[link_name = "[future-read-0]compare-and-set"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]compare-and-set"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&key, &mut arguments);
        abi::Lower::flat(&expected, &mut arguments);
        abi::Lower::flat(&value, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i64(3), arguments.i32(4), arguments.i32(5)), read, forget) }
    }

    /// Deletes a value. Completes with false when there was none.
    #[inline]
    pub fn delete_key(key: &str) -> crate::Pending<Result<bool, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/store@0.1.0")]
        extern "C" {
            #[link_name = "delete-key"]
            fn call(a0: i32, a1: i32) -> i32;
            #[link_name = "[future-read-0]delete-key"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]delete-key"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&key, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1)), read, forget) }
    }

    #[inline]
    pub fn exists(key: &str) -> crate::Pending<Result<bool, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/store@0.1.0")]
        extern "C" {
            #[link_name = "exists"]
            fn call(a0: i32, a1: i32) -> i32;
            #[link_name = "[future-read-0]exists"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]exists"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&key, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1)), read, forget) }
    }

    /// Keys that begin with `prefix` and follow `after`, ordered by their bytes. Returns at most `limit` keys (1 to 1,000).
    #[inline]
    pub fn list_keys(prefix: &str, after: Option<&str>, limit: u32) -> crate::Pending<Result<Vec<String>, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/store@0.1.0")]
        extern "C" {
            #[link_name = "list-keys"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32) -> i32;
            #[link_name = "[future-read-0]list-keys"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]list-keys"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&prefix, &mut arguments);
        abi::Lower::flat(&after, &mut arguments);
        abi::Lower::flat(&limit, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5)), read, forget) }
    }
}

/// Messages among the inferlets of one tenant. Each function needs the grant `messaging` (manifest: `grants.messaging`); without the grant,
/// every call fails with `unsupported`. Names of topics and queues have 1 to 128 characters: letters, digits, `.`, `_`, `-`, `/`. A message
/// has at most 1 MiB. A call costs one round trip to the platform's store, about 0.2 ms.
pub mod messaging {
    use crate::abi;

    /// A message and its sender.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Envelope {
        /// Invocation id of the sender.
        pub sender: String,
        pub message: crate::session::Message,
    }

    impl abi::Shape for Envelope { const SIZE: usize = 20; const ALIGN: usize = 4; const FLAT: usize = 5; }

    impl abi::Lift for Envelope {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                sender: abi::Lift::lift(at.add(0)),
                message: abi::Lift::lift(at.add(8)),
            }
        }
    }

    /// A subscription of a topic. It receives, in order, the messages that are broadcast after `ready` has completed. Dropping the resource ends the
    /// subscription.
    #[derive(Debug)]
    pub struct Subscription(i32);

    impl Subscription {
        /// An inferlet may have 64 subscriptions at once. On a subscription beyond these, `ready` and `next` fail with `limit-exceeded`.
        #[inline]
        pub fn new(topic: &str) -> Self {
            #[link(wasm_import_module = "pie:inferlet/messaging@0.1.0")]
            extern "C" {
                #[link_name = "[constructor]subscription"]
                fn call(a0: i32, a1: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&topic, &mut arguments);
            unsafe { crate::messaging::Subscription::from_handle(call(arguments.i32(0), arguments.i32(1))) }
        }

        /// Completes once the subscription is in effect: it receives messages that are broadcast later.
        #[inline]
        pub fn ready(&self) -> crate::Pending<Result<(), crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/messaging@0.1.0")]
            extern "C" {
                #[link_name = "[method]subscription.ready"]
                fn call(a0: i32) -> i32;
                #[link_name = "[future-read-0][method]subscription.ready"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]subscription.ready"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
        }

        /// The next message; waits for one. At most 1,024 messages with 4 MiB may be unread. The platform drops a message that does not fit, or for which
        /// the tenant's share of the runtime's memory has no room. At the place of dropped messages, `next` fails once with `limit-exceeded`. It fails
        /// with `unavailable` where the inferlet may have missed messages because the platform's store was away, and with `closed` after `unsubscribe`.
        #[inline]
        pub fn next(&self) -> crate::Pending<Result<crate::messaging::Envelope, crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/messaging@0.1.0")]
            extern "C" {
                #[link_name = "[method]subscription.next"]
                fn call(a0: i32) -> i32;
                #[link_name = "[future-read-0][method]subscription.next"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]subscription.next"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
        }

        #[inline]
        pub fn unsubscribe(&self) {
            #[link(wasm_import_module = "pie:inferlet/messaging@0.1.0")]
            extern "C" {
                #[link_name = "[method]subscription.unsubscribe"]
                fn call(a0: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { call(arguments.i32(0)) }
        }

        pub(crate) fn from_handle(handle: i32) -> Self {
            Self(handle)
        }
    }

    impl Drop for Subscription {
        #[inline]
        fn drop(&mut self) {
            #[link(wasm_import_module = "pie:inferlet/messaging@0.1.0")]
            extern "C" {
                #[link_name = "[resource-drop]subscription"]
                fn drop_resource(handle: i32);
            }
            unsafe { drop_resource(self.0) }
        }
    }

    impl abi::Shape for Subscription { const SIZE: usize = 4; const ALIGN: usize = 4; const FLAT: usize = 1; }

    impl abi::Lift for Subscription {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self(abi::Lift::lift(at))
        }
    }

    impl abi::Lower for Subscription {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, _: &mut abi::Kept) {
            *(at as *mut i32) = self.0;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(self.0 as u32 as u64);
        }
    }

    /// Sends a message to all current subscriptions of `topic`. Later subscriptions do not get the message. Completes with the number of subscriptions
    /// to which the message was sent.
    #[inline]
    pub fn broadcast(topic: &str, message: &crate::session::Message) -> crate::Pending<Result<u32, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/messaging@0.1.0")]
        extern "C" {
            #[link_name = "broadcast"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32) -> i32;
            #[link_name = "[future-read-0]broadcast"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]broadcast"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&topic, &mut arguments);
        abi::Lower::flat(&message, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4)), read, forget) }
    }

    /// Appends a message to a queue. At most one `pull` gets the message. Fails with `limit-exceeded` when the queue holds 10,000 messages or 16 MiB,
    /// or when all queues of the tenant together hold 64 MiB. The platform deletes a queue after a day without use.
    #[inline]
    pub fn push(name: &str, message: &crate::session::Message) -> crate::Pending<Result<(), crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/messaging@0.1.0")]
        extern "C" {
            #[link_name = "push"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32) -> i32;
            #[link_name = "[future-read-0]push"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]push"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&name, &mut arguments);
        abi::Lower::flat(&message, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4)), read, forget) }
    }

    /// Takes the first message of a queue. Waits while the queue is empty.
    #[inline]
    pub fn pull(name: &str) -> crate::Pending<Result<crate::messaging::Envelope, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/messaging@0.1.0")]
        extern "C" {
            #[link_name = "pull"]
            fn call(a0: i32, a1: i32) -> i32;
            #[link_name = "[future-read-0]pull"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]pull"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&name, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1)), read, forget) }
    }
}

/// HTTP requests to the hosts that the function was granted (manifest: `grants.hosts`). A request or redirect to another host fails with
/// `unsupported`. The platform refuses addresses of private networks, unless its operator allows them.
pub mod http {
    use crate::abi;

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Header {
        pub name: String,
        pub value: String,
    }

    impl abi::Shape for Header { const SIZE: usize = 16; const ALIGN: usize = 4; const FLAT: usize = 4; }

    impl abi::Lift for Header {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                name: abi::Lift::lift(at.add(0)),
                value: abi::Lift::lift(at.add(8)),
            }
        }
    }

    impl abi::Lower for Header {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.name, at.add(0), kept);
            abi::Lower::lower(&self.value, at.add(8), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.name, to);
            abi::Lower::flat(&self.value, to);
        }
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Request {
        /// `GET`, `POST`, … `invalid-argument` for a text that is not a token of RFC 9110.
        pub method: String,
        /// A URL with `http:` or `https:`, without user and password.
        pub url: String,
        pub headers: Vec<crate::http::Header>,
        /// At most 4 MiB.
        pub body: Option<Vec<u8>>,
        /// Time limit for the head of the response, including redirects: 30,000 by default, at most the invocation's remaining time.
        pub timeout_ms: Option<u32>,
        /// Number of redirects to follow (0 to 10), each to a granted host. A redirect beyond this number is itself the response.
        pub redirects: u32,
    }

    impl abi::Shape for Request { const SIZE: usize = 48; const ALIGN: usize = 4; const FLAT: usize = 12; }

    impl abi::Lower for Request {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.method, at.add(0), kept);
            abi::Lower::lower(&self.url, at.add(8), kept);
            abi::Lower::lower(&self.headers, at.add(16), kept);
            abi::Lower::lower(&self.body, at.add(24), kept);
            abi::Lower::lower(&self.timeout_ms, at.add(36), kept);
            abi::Lower::lower(&self.redirects, at.add(44), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.method, to);
            abi::Lower::flat(&self.url, to);
            abi::Lower::flat(&self.headers, to);
            abi::Lower::flat(&self.body, to);
            abi::Lower::flat(&self.timeout_ms, to);
            abi::Lower::flat(&self.redirects, to);
        }
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct ResponseHead {
        pub status: u16,
        /// The header lines, with names in lower case. A name may occur several times.
        pub headers: Vec<crate::http::Header>,
        /// The URL of the response, after redirects.
        pub url: String,
    }

    impl abi::Shape for ResponseHead { const SIZE: usize = 20; const ALIGN: usize = 4; const FLAT: usize = 5; }

    impl abi::Lift for ResponseHead {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                status: abi::Lift::lift(at.add(0)),
                headers: abi::Lift::lift(at.add(4)),
                url: abi::Lift::lift(at.add(12)),
            }
        }
    }

    /// A request in progress and its response. Dropping the resource closes the connection.
    #[derive(Debug)]
    pub struct Exchange(i32);

    impl Exchange {
        /// Sends the request. An inferlet may have 64 requests in progress; `head` reports one more as `limit-exceeded`.
        #[inline]
        pub fn new(request: &crate::http::Request) -> Self {
            #[link(wasm_import_module = "pie:inferlet/http@0.1.0")]
            extern "C" {
                #[link_name = "[constructor]exchange"]
                fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32, a6: i32, a7: i32, a8: i32, a9: i32, a10: i32, a11: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&request, &mut arguments);
            unsafe { crate::http::Exchange::from_handle(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5), arguments.i32(6), arguments.i32(7), arguments.i32(8), arguments.i32(9), arguments.i32(10), arguments.i32(11))) }
        }

        /// The response without its body. `unsupported` for a host that was not granted, `unavailable` when the host cannot be reached or closes the
        /// connection, `deadline-exceeded` after the time limit.
        #[inline]
        pub fn head(&self) -> crate::Pending<Result<crate::http::ResponseHead, crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/http@0.1.0")]
            extern "C" {
                #[link_name = "[method]exchange.head"]
                fn call(a0: i32) -> i32;
                #[link_name = "[future-read-0][method]exchange.head"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]exchange.head"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
        }

        /// The next piece of the body, at most 64 KiB, decompressed; none at the end. `limit-exceeded` after 32 MiB in all, or once one
        /// decoder has taken 64 MiB (a body may have two encodings).
        #[inline]
        pub fn read(&self) -> crate::Pending<Result<Option<Vec<u8>>, crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/http@0.1.0")]
            extern "C" {
                #[link_name = "[method]exchange.read"]
                fn call(a0: i32) -> i32;
                #[link_name = "[future-read-0][method]exchange.read"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]exchange.read"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
        }

        pub(crate) fn from_handle(handle: i32) -> Self {
            Self(handle)
        }
    }

    impl Drop for Exchange {
        #[inline]
        fn drop(&mut self) {
            #[link(wasm_import_module = "pie:inferlet/http@0.1.0")]
            extern "C" {
                #[link_name = "[resource-drop]exchange"]
                fn drop_resource(handle: i32);
            }
            unsafe { drop_resource(self.0) }
        }
    }

    impl abi::Shape for Exchange { const SIZE: usize = 4; const ALIGN: usize = 4; const FLAT: usize = 1; }

    impl abi::Lift for Exchange {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self(abi::Lift::lift(at))
        }
    }

    impl abi::Lower for Exchange {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, _: &mut abi::Kept) {
            *(at as *mut i32) = self.0;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(self.0 as u32 as u64);
        }
    }
}

/// Inferlets that this inferlet launches. The function needs the grant `launch` (manifest: `grants.launch`, a list of functions or `"*"`);
/// without it, calls fail with `unsupported`. A child is an invocation with its own id, log and usage. It runs inside the reservation of its
/// root (the ancestor that no inferlet launched), so it starts at once. It ends with its parent at the latest. An inferlet may hold 1,024 child
/// handles; a handle counts until it is dropped, even after the child's end.
pub mod children {
    use crate::abi;

    /// Failure of a child: the code and text of its `error` event.
    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Failure {
        pub code: String,
        pub message: String,
    }

    impl abi::Shape for Failure { const SIZE: usize = 16; const ALIGN: usize = 4; const FLAT: usize = 4; }

    impl abi::Lift for Failure {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                code: abi::Lift::lift(at.add(0)),
                message: abi::Lift::lift(at.add(8)),
            }
        }
    }

    /// Outcome of a child.
    #[derive(Debug, Clone, PartialEq)]
    pub enum Ending {
        /// The child's result as JSON text.
        Success(String),
        Failure(crate::children::Failure),
    }

    impl abi::Shape for Ending { const SIZE: usize = 20; const ALIGN: usize = 4; const FLAT: usize = 5; }

    impl abi::Lift for Ending {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            match *(at as *const u8) {
                0 => Self::Success(abi::Lift::lift(at.add(4))),
                1 => Self::Failure(abi::Lift::lift(at.add(4))),
                _ => abi::wrong_tag(),
            }
        }
    }

    #[derive(Debug)]
    pub struct Child(i32);

    impl Child {
        /// Launches a function of this tenant. `name` runs the version of the alias `live`; `name@alias` and `name@version` choose another. `input`
        /// is JSON text of at most 262,144 characters that the function's schema accepts. `started` reports failures.
        #[inline]
        pub fn new(name: &str, input: &str) -> Self {
            #[link(wasm_import_module = "pie:inferlet/children@0.1.0")]
            extern "C" {
                #[link_name = "[constructor]child"]
                fn call(a0: i32, a1: i32, a2: i32, a3: i32) -> i32;
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&name, &mut arguments);
            abi::Lower::flat(&input, &mut arguments);
            unsafe { crate::children::Child::from_handle(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3))) }
        }

        /// The child's invocation id. `not-found` when the function does not exist, `invalid-argument` when its schema refuses the input,
        /// `limit-exceeded` when the root has 64 running descendants or has had 4,096 in all, or when this inferlet is 8 generations below the root.
        #[inline]
        pub fn started(&self) -> crate::Pending<Result<String, crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/children@0.1.0")]
            extern "C" {
                #[link_name = "[method]child.started"]
                fn call(a0: i32) -> i32;
                #[link_name = "[future-read-0][method]child.started"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]child.started"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
        }

        /// Sends a message to the child's session. `closed` once the child has ended.
        #[inline]
        pub fn send(&self, message: &crate::session::Message) -> crate::Pending<Result<(), crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/children@0.1.0")]
            extern "C" {
                #[link_name = "[method]child.send"]
                fn call(a0: i32, a1: i32, a2: i32, a3: i32) -> i32;
                #[link_name = "[future-read-0][method]child.send"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]child.send"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            abi::Lower::flat(&message, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3)), read, forget) }
        }

        /// Tells the child that no more messages follow.
        #[inline]
        pub fn close(&self) {
            #[link(wasm_import_module = "pie:inferlet/children@0.1.0")]
            extern "C" {
                #[link_name = "[method]child.close"]
                fn call(a0: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { call(arguments.i32(0)) }
        }

        /// The next message of the child. `closed` once the child has ended and the inferlet has read all messages.
        #[inline]
        pub fn receive(&self) -> crate::Pending<Result<crate::session::Message, crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/children@0.1.0")]
            extern "C" {
                #[link_name = "[method]child.receive"]
                fn call(a0: i32) -> i32;
                #[link_name = "[future-read-0][method]child.receive"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]child.receive"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
        }

        /// Completes when the child has ended. Several calls get the same outcome.
        #[inline]
        pub fn wait(&self) -> crate::Pending<Result<crate::children::Ending, crate::types::Error>> {
            #[link(wasm_import_module = "pie:inferlet/children@0.1.0")]
            extern "C" {
                #[link_name = "[method]child.wait"]
                fn call(a0: i32) -> i32;
                #[link_name = "[future-read-0][method]child.wait"]
                fn read(future: i32, result: *mut u8) -> i32;
                #[link_name = "[future-drop-readable-0][method]child.wait"]
                fn forget(future: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { abi::Pending::new(call(arguments.i32(0)), read, forget) }
        }

        /// Cancels the child. `wait` then completes with the failure `cancelled`, or with the child's result if it returned one first. Dropping the
        /// resource does the same.
        #[inline]
        pub fn cancel(&self) {
            #[link(wasm_import_module = "pie:inferlet/children@0.1.0")]
            extern "C" {
                #[link_name = "[method]child.cancel"]
                fn call(a0: i32);
            }
            let mut arguments = abi::Arguments::new();
            abi::Lower::flat(&self, &mut arguments);
            unsafe { call(arguments.i32(0)) }
        }

        pub(crate) fn from_handle(handle: i32) -> Self {
            Self(handle)
        }
    }

    impl Drop for Child {
        #[inline]
        fn drop(&mut self) {
            #[link(wasm_import_module = "pie:inferlet/children@0.1.0")]
            extern "C" {
                #[link_name = "[resource-drop]child"]
                fn drop_resource(handle: i32);
            }
            unsafe { drop_resource(self.0) }
        }
    }

    impl abi::Shape for Child { const SIZE: usize = 4; const ALIGN: usize = 4; const FLAT: usize = 1; }

    impl abi::Lift for Child {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self(abi::Lift::lift(at))
        }
    }

    impl abi::Lower for Child {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, _: &mut abi::Kept) {
            *(at as *mut i32) = self.0;
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            to.push(self.0 as u32 as u64);
        }
    }
}

/// Files that the client and this invocation exchange, for content that is too large for a message. A file has at most 16 MiB. An invocation
/// has at most 256 files and 64 MiB (128 MiB with its children), and a tenant 1 GiB.
/// Names have 1 to 128 characters: letters, digits, `.`, `_`, `-`. The platform keeps files as long as the invocation's events. The HTTP path
/// of a file is `/v1/invocations/{id}/files/{name}`.
pub mod file_exchange {
    use crate::abi;

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct FileInfo {
        pub name: String,
        pub media_type: String,
        /// Size in bytes.
        pub size: u64,
    }

    impl abi::Shape for FileInfo { const SIZE: usize = 24; const ALIGN: usize = 8; const FLAT: usize = 5; }

    impl abi::Lift for FileInfo {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                name: abi::Lift::lift(at.add(0)),
                media_type: abi::Lift::lift(at.add(8)),
                size: abi::Lift::lift(at.add(16)),
            }
        }
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct File {
        pub media_type: String,
        pub content: Vec<u8>,
    }

    impl abi::Shape for File { const SIZE: usize = 16; const ALIGN: usize = 4; const FLAT: usize = 4; }

    impl abi::Lift for File {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                media_type: abi::Lift::lift(at.add(0)),
                content: abi::Lift::lift(at.add(8)),
            }
        }
    }

    /// Stores a file for the client, and announces it by a `message` event `{"file": {"name", "mediaType", "bytes"}}`. Replaces a file of the
    /// same name.
    #[inline]
    pub fn send_file(name: &str, media_type: &str, content: &[u8]) -> crate::Pending<Result<(), crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/file-exchange@0.1.0")]
        extern "C" {
            #[link_name = "send-file"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32) -> i32;
            #[link_name = "[future-read-0]send-file"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]send-file"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&name, &mut arguments);
        abi::Lower::flat(&media_type, &mut arguments);
        abi::Lower::flat(&content, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5)), read, forget) }
    }

    /// A file of the invocation, from the client or from the inferlet. Waits until the file exists. `closed` when the client closes the session first.
    #[inline]
    pub fn receive_file(name: &str) -> crate::Pending<Result<crate::file_exchange::File, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/file-exchange@0.1.0")]
        extern "C" {
            #[link_name = "receive-file"]
            fn call(a0: i32, a1: i32) -> i32;
            #[link_name = "[future-read-0]receive-file"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]receive-file"]
            fn forget(future: i32);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&name, &mut arguments);
        unsafe { abi::Pending::new(call(arguments.i32(0), arguments.i32(1)), read, forget) }
    }

    /// The present files, ordered by name.
    #[inline]
    pub fn list_files() -> crate::Pending<Result<Vec<crate::file_exchange::FileInfo>, crate::types::Error>> {
        #[link(wasm_import_module = "pie:inferlet/file-exchange@0.1.0")]
        extern "C" {
            #[link_name = "list-files"]
            fn call() -> i32;
            #[link_name = "[future-read-0]list-files"]
            fn read(future: i32, result: *mut u8) -> i32;
            #[link_name = "[future-drop-readable-0]list-files"]
            fn forget(future: i32);
        }
        unsafe { abi::Pending::new(call(), read, forget) }
    }
}

/// Named texts of the function's version: the tenant's secrets that the manifest lists (`secrets`), and plain variables (`environment`). A version
/// keeps the values that the secrets had at its deployment. A name has upper-case letters, digits and `_`. Reading a value is immediate. In log
/// lines and error messages, the platform replaces each value of four or more characters by `[NAME]`.
pub mod environment {
    use crate::abi;

    /// The value of a variable or secret, or none when the manifest does not list it.
    #[must_use]
    #[inline]
    pub fn get_variable(name: &str) -> Option<String> {
        #[link(wasm_import_module = "pie:inferlet/environment@0.1.0")]
        extern "C" {
            #[link_name = "get-variable"]
            fn call(a0: i32, a1: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&name, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// The names of all variables and secrets, in order.
    #[must_use]
    #[inline]
    pub fn list_variables() -> Vec<String> {
        #[link(wasm_import_module = "pie:inferlet/environment@0.1.0")]
        extern "C" {
            #[link_name = "list-variables"]
            fn call(result: *mut u8);
        }
        let mut result = abi::Area::new();
        unsafe { call(result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }
}

/// Questions to a person. An invocation that asks a question ends its attempt and waits. Meanwhile it has no instance, holds no pages, embeds or
/// queues, and takes no slot; it keeps waiting across restarts of the platform. When a person answers
/// (`POST /v1/invocations/{id}/answer`, `pie answer`), or the time has passed, a new attempt runs from the beginning with the same input. There,
/// `resumed` returns the state that the last attempt left, and the answer.
pub mod person {
    use crate::abi;

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct Question {
        /// Text for the person; 1 to 4,096 characters.
        pub text: String,
        /// JSON Schema that the answer must match, as JSON text of at most 16,384 characters.
        pub schema: String,
        /// Time that the invocation waits for an answer: 1 to 2,592,000 seconds (30 days).
        pub timeout_seconds: u32,
        /// Text for the next attempt; at most 262,144 characters.
        pub state: String,
    }

    impl abi::Shape for Question { const SIZE: usize = 28; const ALIGN: usize = 4; const FLAT: usize = 7; }

    impl abi::Lower for Question {
        #[inline]
        unsafe fn lower(&self, at: *mut u8, kept: &mut abi::Kept) {
            abi::Lower::lower(&self.text, at.add(0), kept);
            abi::Lower::lower(&self.schema, at.add(8), kept);
            abi::Lower::lower(&self.timeout_seconds, at.add(16), kept);
            abi::Lower::lower(&self.state, at.add(20), kept);
        }
        #[inline]
        fn flat(&self, to: &mut abi::Arguments) {
            abi::Lower::flat(&self.text, to);
            abi::Lower::flat(&self.schema, to);
            abi::Lower::flat(&self.timeout_seconds, to);
            abi::Lower::flat(&self.state, to);
        }
    }

    #[derive(Debug, Clone, PartialEq)]
    pub enum Answer {
        /// The answer as JSON text that the schema accepts.
        Answered(String),
        /// The time has passed without an answer.
        Expired,
    }

    impl abi::Shape for Answer { const SIZE: usize = 12; const ALIGN: usize = 4; const FLAT: usize = 3; }

    impl abi::Lift for Answer {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            match *(at as *const u8) {
                0 => Self::Answered(abi::Lift::lift(at.add(4))),
                1 => Self::Expired,
                _ => abi::wrong_tag(),
            }
        }
    }

    #[derive(Debug, Clone, PartialEq)]
    pub struct Resumption {
        /// The `state` of the last question.
        pub state: String,
        pub answer: crate::person::Answer,
    }

    impl abi::Shape for Resumption { const SIZE: usize = 20; const ALIGN: usize = 4; const FLAT: usize = 5; }

    impl abi::Lift for Resumption {
        #[inline]
        unsafe fn lift(at: *const u8) -> Self {
            Self {
                state: abi::Lift::lift(at.add(0)),
                answer: abi::Lift::lift(at.add(8)),
            }
        }
    }

    /// Asks when `run` returns a result: that result is dropped, and the invocation waits instead of ending. When `run` fails, nothing is asked.
    /// `invalid-argument` for a question that exceeds a limit, a schema that cannot be used, or a second question; `unsupported` in a child.
    #[inline]
    pub fn ask(question: &crate::person::Question) -> Result<(), crate::types::Error> {
        #[link(wasm_import_module = "pie:inferlet/person@0.1.0")]
        extern "C" {
            #[link_name = "ask"]
            fn call(a0: i32, a1: i32, a2: i32, a3: i32, a4: i32, a5: i32, a6: i32, result: *mut u8);
        }
        let mut arguments = abi::Arguments::new();
        abi::Lower::flat(&question, &mut arguments);
        let mut result = abi::Area::new();
        unsafe { call(arguments.i32(0), arguments.i32(1), arguments.i32(2), arguments.i32(3), arguments.i32(4), arguments.i32(5), arguments.i32(6), result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }

    /// The answer to the last question, or none in an invocation that has not asked.
    #[must_use]
    #[inline]
    pub fn resumed() -> Option<crate::person::Resumption> {
        #[link(wasm_import_module = "pie:inferlet/person@0.1.0")]
        extern "C" {
            #[link_name = "resumed"]
            fn call(result: *mut u8);
        }
        let mut result = abi::Area::new();
        unsafe { call(result.at()) };
        unsafe { abi::Lift::lift(result.at()) }
    }
}

/// Passes values to the platform and back by the Component Model's canonical ABI. Inferlets do not use this module themselves.
#[doc(hidden)]
pub mod abi {
    use std::alloc::{alloc, dealloc, handle_alloc_error, realloc, Layout};
    use std::marker::PhantomData;
    use std::mem::{forget as leak, MaybeUninit};

    /// Layout of a type: its size and alignment in memory, and the number of core values that pass it.
    pub trait Shape {
        const SIZE: usize;
        const ALIGN: usize;
        const FLAT: usize;
        /// True when a slice of this type already has the layout of a list of the contract.
        const PLAIN: bool = false;
    }

    /// A type that the platform passes to an inferlet.
    pub trait Lift: Shape + Sized {
        /// Reads the value at an address, and takes over the memory that the value refers to.
        /// # Safety
        /// The platform wrote a value of this type there, and no call has read it yet.
        unsafe fn lift(at: *const u8) -> Self;
    }

    /// A type that an inferlet passes to the platform.
    pub trait Lower: Shape {
        /// Writes the value to an address. The written value refers to memory of `self` and `kept`: keep both until the call ends.
        /// # Safety
        /// `SIZE` bytes at the address are writable, and the address is a multiple of `ALIGN`.
        unsafe fn lower(&self, at: *mut u8, kept: &mut Kept);
        /// Adds the value to the arguments of a call that passes them as core values.
        fn flat(&self, to: &mut Arguments);
    }

    /// Lists that were made for a call and live until its end.
    pub struct Kept(Vec<Vec<u64>>);

    impl Kept {
        pub fn new() -> Self {
            Kept(Vec::new())
        }
    }

    /// The arguments of a call as core values: the bits of each, extended with zeros to 64 bits. The cases of a variant share core values. If
    /// one case has 32 bits and another has 64, the ABI passes 64 bits, and the upper half of a value of 32 bits must be zero.
    pub struct Arguments {
        values: [u64; 16],
        count: usize,
        kept: Kept,
    }

    impl Arguments {
        pub fn new() -> Self {
            Arguments { values: [0; 16], count: 0, kept: Kept::new() }
        }
        pub fn push(&mut self, value: u64) {
            self.values[self.count] = value;
            self.count += 1;
        }
        pub fn count(&self) -> usize {
            self.count
        }
        /// Adds zeros for the core values that the passed case of a variant lacks and other cases have. Those values are zero already: `new` has
        /// cleared all values, and only `push` writes them.
        pub fn pad(&mut self, end: usize) {
            self.count = end;
        }
        pub fn i32(&self, index: usize) -> i32 {
            self.values[index] as i32
        }
        pub fn i64(&self, index: usize) -> i64 {
            self.values[index] as i64
        }
        pub fn f32(&self, index: usize) -> f32 {
            f32::from_bits(self.values[index] as u32)
        }
        pub fn f64(&self, index: usize) -> f64 {
            f64::from_bits(self.values[index])
        }
    }

    /// Memory for a result, or for arguments that are too many to be passed as core values.
    pub struct Area(MaybeUninit<[u64; 32]>);

    impl Area {
        pub fn new() -> Self {
            Area(MaybeUninit::uninit())
        }
        pub fn at(&mut self) -> *mut u8 {
            self.0.as_mut_ptr() as *mut u8
        }
    }

    /// A call that is under way. Calls that are started before the first wait run at the same time.
    #[must_use = "dropping a pending call discards its result and its error: call `wait()`"]
    pub struct Pending<T> {
        future: i32,
        read: unsafe extern "C" fn(i32, *mut u8) -> i32,
        forget: unsafe extern "C" fn(i32),
        value: PhantomData<T>,
    }

    impl<T: Lift> Pending<T> {
        /// # Safety
        /// `read` and `forget` belong to this future, whose value has the type `T`.
        pub unsafe fn new(
            future: i32,
            read: unsafe extern "C" fn(i32, *mut u8) -> i32,
            forget: unsafe extern "C" fn(i32),
        ) -> Self {
            Pending { future, read, forget, value: PhantomData }
        }

        /// Waits for the call's result.
        pub fn wait(self) -> T {
            let mut result = Area::new();
            unsafe {
                (self.read)(self.future, result.at());
                T::lift(result.at())
            }
        }
    }

    impl<T> Drop for Pending<T> {
        fn drop(&mut self) {
            unsafe { (self.forget)(self.future) }
        }
    }

    pub fn wrong_tag() -> ! {
        panic!("the platform handed over a case that this version of the contract lacks")
    }

    // For each numeric type: its name, its size, which is also its alignment, and its bits as a core value. The ABI passes a small signed
    // number as an i32 with the same sign.
    macro_rules! plain {
        ($($name:ty, $size:literal, $bits:expr;)*) => {$(
            impl Shape for $name {
                const SIZE: usize = $size;
                const ALIGN: usize = $size;
                const FLAT: usize = 1;
                const PLAIN: bool = true;
            }
            impl Lift for $name {
                unsafe fn lift(at: *const u8) -> Self {
                    *(at as *const $name)
                }
            }
            impl Lower for $name {
                unsafe fn lower(&self, at: *mut u8, _: &mut Kept) {
                    *(at as *mut $name) = *self;
                }
                fn flat(&self, to: &mut Arguments) {
                    let bits: fn($name) -> u64 = $bits;
                    to.push(bits(*self));
                }
            }
        )*};
    }

    plain! {
        u8, 1, |value| value as u64;
        i8, 1, |value| value as i32 as u32 as u64;
        u16, 2, |value| value as u64;
        i16, 2, |value| value as i32 as u32 as u64;
        u32, 4, |value| value as u64;
        i32, 4, |value| value as u32 as u64;
        u64, 8, |value| value;
        i64, 8, |value| value as u64;
        f32, 4, |value| value.to_bits() as u64;
        f64, 8, |value| value.to_bits();
    }

    impl Shape for bool {
        const SIZE: usize = 1;
        const ALIGN: usize = 1;
        const FLAT: usize = 1;
    }
    impl Lift for bool {
        unsafe fn lift(at: *const u8) -> Self {
            *at != 0
        }
    }
    impl Lower for bool {
        unsafe fn lower(&self, at: *mut u8, _: &mut Kept) {
            *at = *self as u8;
        }
        fn flat(&self, to: &mut Arguments) {
            to.push(*self as u64);
        }
    }

    impl Shape for () {
        const SIZE: usize = 0;
        const ALIGN: usize = 1;
        const FLAT: usize = 0;
    }
    impl Lift for () {
        unsafe fn lift(_: *const u8) -> Self {}
    }

    impl<T: Shape + ?Sized> Shape for &T {
        const SIZE: usize = T::SIZE;
        const ALIGN: usize = T::ALIGN;
        const FLAT: usize = T::FLAT;
    }
    impl<T: Lower + ?Sized> Lower for &T {
        unsafe fn lower(&self, at: *mut u8, kept: &mut Kept) {
            (**self).lower(at, kept)
        }
        fn flat(&self, to: &mut Arguments) {
            (**self).flat(to)
        }
    }

    /// Bytes of a list or text as a value: its address and its length.
    const LIST_BYTES: usize = 8;

    unsafe fn lower_list(address: usize, length: usize, at: *mut u8) {
        *(at as *mut [u32; 2]) = [address as u32, length as u32];
    }

    // For each type: the generic parameters of its implementation in brackets, then the type. `[T] [T];` is `impl<T> Shape for [T]`.
    macro_rules! list {
        ($([$($of:tt)*] $name:ty;)*) => {$(
            impl<$($of)*> Shape for $name {
                const SIZE: usize = LIST_BYTES;
                const ALIGN: usize = 4;
                const FLAT: usize = 2;
            }
        )*};
    }
    list! { [] str; [] String; [T] [T]; [T] Vec<T>; }

    impl Lower for str {
        unsafe fn lower(&self, at: *mut u8, _: &mut Kept) {
            lower_list(self.as_ptr() as usize, self.len(), at);
        }
        fn flat(&self, to: &mut Arguments) {
            to.push(self.as_ptr() as u64);
            to.push(self.len() as u64);
        }
    }
    impl Lower for String {
        unsafe fn lower(&self, at: *mut u8, kept: &mut Kept) {
            self.as_str().lower(at, kept)
        }
        fn flat(&self, to: &mut Arguments) {
            self.as_str().flat(to)
        }
    }
    impl Lift for String {
        unsafe fn lift(at: *const u8) -> Self {
            // The platform checks that texts are UTF-8.
            String::from_utf8_unchecked(Lift::lift(at))
        }
    }

    /// Address of a list with these items: the slice itself for a plain type, else a converted copy that `kept` owns.
    fn list_of<T: Lower>(items: &[T], kept: &mut Kept) -> usize {
        if T::PLAIN || items.is_empty() {
            return items.as_ptr() as usize;
        }
        // Words of 8 bytes give the list the largest alignment that the ABI knows.
        let mut list = vec![0u64; items.len() * T::SIZE / 8 + 1];
        let start = list.as_mut_ptr() as *mut u8;
        for (index, item) in items.iter().enumerate() {
            unsafe { item.lower(start.add(index * T::SIZE), kept) };
        }
        kept.0.push(list);
        start as usize
    }

    impl<T: Lower> Lower for [T] {
        unsafe fn lower(&self, at: *mut u8, kept: &mut Kept) {
            let address = list_of(self, kept);
            lower_list(address, self.len(), at);
        }
        fn flat(&self, to: &mut Arguments) {
            let address = list_of(self, &mut to.kept);
            to.push(address as u64);
            to.push(self.len() as u64);
        }
    }
    impl<T: Lower> Lower for Vec<T> {
        unsafe fn lower(&self, at: *mut u8, kept: &mut Kept) {
            self.as_slice().lower(at, kept)
        }
        fn flat(&self, to: &mut Arguments) {
            self.as_slice().flat(to)
        }
    }
    impl<T: Lift> Lift for Vec<T> {
        unsafe fn lift(at: *const u8) -> Self {
            let [address, length] = *(at as *const [u32; 2]);
            let (start, length) = (address as *mut u8, length as usize);
            if length == 0 {
                return Vec::new();
            }
            if T::PLAIN {
                return Vec::from_raw_parts(start as *mut T, length, length);
            }
            let items = (0..length).map(|index| T::lift(start.add(index * T::SIZE))).collect();
            dealloc(start, Layout::from_size_align_unchecked(length * T::SIZE, T::ALIGN));
            items
        }
    }

    const fn larger(a: usize, b: usize) -> usize {
        if a > b { a } else { b }
    }
    const fn rounded(size: usize, align: usize) -> usize {
        (size + align - 1) / align * align
    }

    impl<T: Shape> Shape for Option<T> {
        const SIZE: usize = T::ALIGN + rounded(T::SIZE, T::ALIGN);
        const ALIGN: usize = T::ALIGN;
        const FLAT: usize = T::FLAT + 1;
    }
    impl<T: Lift> Lift for Option<T> {
        unsafe fn lift(at: *const u8) -> Self {
            if *at == 0 { None } else { Some(T::lift(at.add(T::ALIGN))) }
        }
    }
    impl<T: Lower> Lower for Option<T> {
        unsafe fn lower(&self, at: *mut u8, kept: &mut Kept) {
            *at = self.is_some() as u8;
            if let Some(value) = self {
                value.lower(at.add(T::ALIGN), kept);
            }
        }
        fn flat(&self, to: &mut Arguments) {
            let end = to.count + Self::FLAT;
            to.push(self.is_some() as u64);
            if let Some(value) = self {
                value.flat(to);
            }
            to.pad(end);
        }
    }

    impl<T: Shape, E: Shape> Shape for Result<T, E> {
        const SIZE: usize = Self::ALIGN + rounded(larger(T::SIZE, E::SIZE), Self::ALIGN);
        const ALIGN: usize = larger(T::ALIGN, E::ALIGN);
        const FLAT: usize = 1 + larger(T::FLAT, E::FLAT);
    }
    impl<T: Lift, E: Lift> Lift for Result<T, E> {
        unsafe fn lift(at: *const u8) -> Self {
            let value = at.add(Self::ALIGN);
            if *at == 0 { Ok(T::lift(value)) } else { Err(E::lift(value)) }
        }
    }

    /// Allocates or resizes memory, for the values that the platform passes to the inferlet.
    /// # Safety
    /// The same as for `realloc` of C.
    pub unsafe fn reallocate(old: *mut u8, old_size: usize, align: usize, size: usize) -> *mut u8 {
        if size == 0 {
            return align as *mut u8;
        }
        let layout = Layout::from_size_align_unchecked(size, align);
        let at = if old_size == 0 {
            alloc(layout)
        } else {
            realloc(old, Layout::from_size_align_unchecked(old_size, align), size)
        };
        if at.is_null() {
            handle_alloc_error(layout)
        }
        at
    }

    /// A type in which a program takes its input: `String` for the JSON text itself, or a type that is parsed from the text.
    pub trait Input: Sized {
        fn parse(text: String) -> Result<Self, String>;
    }
    impl Input for String {
        fn parse(text: String) -> Result<Self, String> {
            Ok(text)
        }
    }

    /// Runs the program with its input, and returns the address of its result.
    /// # Safety
    /// `text` and `length` are an allocation with UTF-8, which this function takes over.
    pub unsafe fn run<I: Input, O: ToString, E: ToString>(
        text: *mut u8,
        length: usize,
        program: fn(I) -> Result<O, E>,
    ) -> *const u8 {
        std::panic::set_hook(Box::new(|panic| crate::runtime::log(crate::runtime::LogLevel::Error, &panic.to_string())));
        let input = I::parse(String::lift([text as u32, length as u32].as_ptr() as *const u8));
        let outcome = input.and_then(|input| match program(input) {
            Ok(output) => Ok(output.to_string()),
            Err(error) => Err(error.to_string()),
        });
        let (tag, answer) = match outcome {
            Ok(output) => (0, output),
            Err(error) => (1, error),
        };
        // This array has the layout of the contract's `result<string, string>`. The platform reads it after the return, so it is never freed.
        let result = Box::new([tag, answer.as_ptr() as u32, answer.len() as u32]);
        leak(answer);
        Box::into_raw(result) as *const u8
    }
}
