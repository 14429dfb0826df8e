/**
 * The prelude of every JavaScript inferlet: defines the globals of a small web platform on top of the host's calls. Guest code: it runs in
 * QuickJS, not in Node.
 */
import './clock.ts';
import './random.ts';
import './text.ts';
import './timers.ts';
import './console.ts';
import './abort.ts';

export { wrap } from './wrap.ts';
