/** `npm pack` and `npm publish` run this last: the clone uses the source again. */
import { unpacked } from './exports.ts';
import { rewriteExports } from './manifest.ts';

rewriteExports(unpacked);
