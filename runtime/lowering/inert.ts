/** Id of the code section in a core module. */
const CODE_SECTION = 10;

/**
 * True when no function of a core module does anything: each body is empty or `unreachable`. Componentised JavaScript has such modules as
 * stubbed WASI. A metered module is inert, too, if metering has added no code. Throws a `RangeError` on a truncated module.
 */
export function isInert(bytes: Uint8Array): boolean {
  // The sections begin behind the header of eight bytes.
  let at = 8;
  const byte = (): number => {
    const value = bytes[at++];
    if (value === undefined) throw new RangeError('a truncated core module');
    return value;
  };
  const leb = (): number => {
    let result = 0;
    let shift = 0;
    for (;;) {
      const value = byte();
      result |= (value & 127) << shift;
      if (value < 128) return result >>> 0;
      shift += 7;
    }
  };
  while (at < bytes.length) {
    const id = byte();
    const size = leb();
    const end = at + size;
    if (id === CODE_SECTION) {
      const count = leb();
      for (let i = 0; i < count; i++) {
        const length = leb();
        const body = bytes.subarray(at, at + length);
        at += length;
        if (!isEmptyBody(body)) return false;
      }
      return true;
    }
    at = end;
  }
  // A module without a code section has no function that traps: it is no stub.
  return false;
}

/** True for a body of `end` (byte 0x0b) or `unreachable end` (bytes 0x00, 0x0b). A first byte of 0 declares no locals. */
function isEmptyBody(body: Uint8Array): boolean {
  if (body.length === 2) return body[0] === 0 && body[1] === 0x0b;
  return body.length === 3 && body[0] === 0 && body[1] === 0x00 && body[2] === 0x0b;
}
