/**
 * The prelude of every JavaScript inferlet: defines the globals of a small web platform on top of the host's calls. Guest code: it runs in
 * QuickJS, not in Node.
 */
import './timers.ts';
import './random.ts';
import './text.ts';
import './console.ts';
import './abort.ts';

export { wrap } from './phase.ts';
