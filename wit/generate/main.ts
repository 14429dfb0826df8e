import { generate } from './generate.ts';

for (const file of await generate()) process.stdout.write(`${file}\n`);
