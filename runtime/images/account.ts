import { type HandlerError, handlerError } from '#gpu-host/protocol/errors.ts';
import { type CpuBudget, ENDLESS } from '../grammar/account.ts';
import { MAX_IMAGE_BYTES } from './header.ts';

/** Pictures that wait to be prepared, and bytes of them. */
const MAX_IMAGES = 64;
const MAX_BYTES = 4 * MAX_IMAGE_BYTES;

/** What the pictures of one user (an inferlet) hold of this process and take of the workers' time, within bounds. */
export class ImageAccount {
  readonly #cpu: CpuBudget;
  #images = 0;
  #bytes = 0;

  constructor(cpu: CpuBudget = ENDLESS) {
    this.#cpu = cpu;
  }

  /** Takes in a picture of so many bytes until `end`; or why it must not. */
  begin(bytes: number): HandlerError | null {
    const refused = this.refuse();
    if (refused) return refused;
    if (this.#images >= MAX_IMAGES || this.#bytes + bytes > MAX_BYTES) {
      const text = `more than ${MAX_IMAGES} pictures, or ${MAX_BYTES} bytes of them, wait to be encoded; await some first`;
      return handlerError('limit-exceeded', text);
    }
    this.#images += 1;
    this.#bytes += bytes;
    return null;
  }

  end(bytes: number): void {
    this.#images -= 1;
    this.#bytes -= bytes;
  }

  charge(cpuMs: number): void {
    this.#cpu.charge(cpuMs);
  }

  /** Why no worker may do more for it, or null. */
  refuse(): HandlerError | null {
    if (!this.#cpu.usedUp()) return null;
    return handlerError('limit-exceeded', 'the CPU time is used up (manifest: limits.cpuMs)');
  }
}
