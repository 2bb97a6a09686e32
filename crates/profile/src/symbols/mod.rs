//! The exported functions. Each has the C library's signature and its promises.

mod by_number;
mod bytes;
mod names;
mod streams;
mod users;

/// Defines functions: `fn [name, alias](argument: type, ..) -> type = |next| ..`, where `next`
/// calls the next function of the name with the same arguments.
macro_rules! timed {
    ($(
        fn [$($name:ident),+] $args:tt -> $ret:ty = |$next:ident| $body:expr;
    )*) => {
        $($(
            $crate::symbols::timed! { @one $name $args -> $ret = |$next| $body }
        )+)*
    };
    (@one $name:ident ($($arg:ident : $ty:ty),* $(,)?) -> $ret:ty = |$next:ident| $body:expr) => {
        // SAFETY: the symbol stands for the C library's of the same name and has its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            static NEXT: $crate::next_symbol::Next =
                $crate::next_symbol::Next::new(concat!(stringify!($name), "\0"));
            let $next = move || -> $ret {
                // SAFETY: the address is that of a function of this name, whose signature this is;
                // the arguments are the program's own.
                unsafe {
                    std::mem::transmute::<usize, unsafe extern "C-unwind" fn($($ty),*) -> $ret>(
                        NEXT.address(),
                    )($($arg),*)
                }
            };
            $body
        }
    };
}
pub(crate) use timed;
