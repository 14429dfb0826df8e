import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { dirname, extname, join } from 'node:path';
import { nameBytes, Reader, readSections, SECTION, WasmError, writeSections } from '../wasm/binary.ts';

/** Custom section of a compiled module; it holds the hash of the module's sources. */
const SECTION_NAME = 'pie-source';

/** Adds the section with the hash of its sources to a module. The sources are the `.c`, `.h` and `.rs` files in the folder of `entry`. */
export async function withSourceNote(module: Uint8Array, entry: string): Promise<Uint8Array> {
  const body = Uint8Array.from([...nameBytes(SECTION_NAME), ...nameBytes(await sourceHash(entry))]);
  return writeSections([...readSections(module), { id: SECTION.custom, body }]);
}

/** The module beside a C or Rust file (`main.wasm` beside `main.c`), if it was compiled from the current sources; null otherwise. */
export async function prebuiltModule(entry: string): Promise<Uint8Array | null> {
  const module = await readFile(`${entry.slice(0, -extname(entry).length)}.wasm`).catch(() => null);
  if (!module) return null;
  try {
    for (const { id, body } of readSections(module)) {
      if (id !== SECTION.custom) continue;
      const reader = new Reader(body);
      if (reader.name() !== SECTION_NAME) continue;
      const notedHash = reader.name();
      return notedHash === (await sourceHash(entry)) ? module : null;
    }
  } catch (error) {
    if (!(error instanceof WasmError)) throw error;
  }
  return null;
}

/** Hash of the names and texts of all sources in the folder of a C or Rust file. */
async function sourceHash(entry: string): Promise<string> {
  const folder = dirname(entry);
  const files = (await readdir(folder)).filter((file) => /\.(c|h|rs)$/.test(file)).sort();
  const hash = createHash('sha256');
  for (const file of files) hash.update(`${file}\0${await readFile(join(folder, file), 'utf8')}\0`);
  return hash.digest('hex');
}
