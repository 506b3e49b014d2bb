//! The daemon. All of it is in [`steadfast::daemon`].

#[cfg(all(feature = "__replay", not(feature = "__bench"), not(debug_assertions)))]
compile_error!("a release build of the daemon must not hold the recorded proxy");

fn main() -> ! {
    steadfast::daemon::main()
}
