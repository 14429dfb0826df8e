import type { Guest } from './guest.ts';

/** Maximum characters of a guest's standard error that are kept. */
const MAX_STDERR = 4096;

const STDERR_HANDLE = 1;
/** Number of bytes that the stub accepts at once. */
const ROOM = 65_536n;

/**
 * Replaces the parts of WASI through which a language runtime reports a panic, so that the user sees the reason: `guest.stderr` keeps the
 * output. Returns null for any other import.
 */
export function stderrStub(guest: Guest, module: string, name: string): WebAssembly.ImportValue | null {
  // Does not call `enter`: a language runtime may report from its allocator, where other imports trap.
  const begin = (): void => {
    guest.refresh();
    guest.resetLifting();
  };
  if (module.startsWith('wasi:cli/stderr@') && name === 'get-stderr') return () => STDERR_HANDLE;
  if (module.startsWith('wasi:cli/environment@') && name === 'get-environment') {
    // A panicking Rust runtime asks for RUST_BACKTRACE. The stub returns no variables: an empty list, whose address need only be aligned.
    return (result: number) => {
      begin();
      const address = guest.range(result, 8, 4) >>> 2;
      guest.u32[address] = 4;
      guest.u32[address + 1] = 0;
    };
  }
  // The first byte of these results is the case: 0 is `none` for the terminal, and `ok` for the streams below.
  if (module.startsWith('wasi:cli/terminal-stderr@') && name === 'get-terminal-stderr') {
    return (result: number) => {
      begin();
      guest.u8[guest.range(result, 8, 4)] = 0;
    };
  }
  if (!module.startsWith('wasi:io/streams@')) return null;
  switch (name) {
    case '[method]output-stream.check-write':
      return (_stream: number, result: number) => {
        begin();
        const address = guest.range(result, 16, 8);
        guest.u8[address] = 0;
        guest.u64[(address + 8) >>> 3] = ROOM;
      };
    case '[method]output-stream.write':
    case '[method]output-stream.blocking-write-and-flush':
      return (_stream: number, pointer: number, length: number, result: number) => {
        begin();
        const bytes = guest.listU8(pointer, length).subarray(0, MAX_STDERR - guest.stderr.length);
        guest.stderr += new TextDecoder().decode(bytes);
        guest.u8[guest.range(result, 12, 4)] = 0;
      };
    case '[method]output-stream.blocking-flush':
    case '[method]output-stream.flush':
      return (_stream: number, result: number) => {
        begin();
        guest.u8[guest.range(result, 12, 4)] = 0;
      };
    case '[resource-drop]output-stream':
      return () => undefined;
    default:
      return null;
  }
}
