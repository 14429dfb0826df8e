/** `npm run generate` for `docs/`: writes the API reference of the guest library and the picture of the architecture. */
import { writeFile } from 'node:fs/promises';
import { ARCHITECTURE_FILE, renderArchitecture } from './architecture.ts';
import { REFERENCE_FILE, renderReference } from './sdk-reference.ts';

await writeFile(REFERENCE_FILE, renderReference());
await writeFile(ARCHITECTURE_FILE, renderArchitecture());
console.log(`${REFERENCE_FILE}\n${ARCHITECTURE_FILE}`);
