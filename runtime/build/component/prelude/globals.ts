/** Puts a value into the global object, like the platform's own: hidden from enumeration. */
export function define(name: string, value: unknown): void {
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}
