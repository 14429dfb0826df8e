export function compileWhole(bytes: Uint8Array<ArrayBuffer>): Promise<WebAssembly.Module>;
