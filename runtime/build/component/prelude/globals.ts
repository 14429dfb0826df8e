/** Defines a global variable. Like the standard's globals, it is hidden from enumeration. */
export function define(name: string, value: unknown): void {
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}
