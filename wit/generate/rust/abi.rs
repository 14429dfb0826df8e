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
