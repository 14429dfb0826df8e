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
