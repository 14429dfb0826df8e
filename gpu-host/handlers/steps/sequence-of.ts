import type { Backend, SequenceInput } from '../../backends/backend.ts';
import { checkInputs, checkSequence } from '../../backends/check.ts';
import { fault } from '../../memory/fault.ts';
import type { DeviceCall } from '../calls/call.ts';

/** The call's next `tokens` inputs, as they go to the device. @throws CallFault, or CallHeld when there is no memory */
export function sequenceOf(call: DeviceCall, tokens: number, backend: Backend): SequenceInput {
  // Making room for an earlier call may have ended this call's inferlet.
  if (call.hostQueue.space.closed) throw fault('cancelled', 'the inferlet has ended');
  call.hostQueue.checkGoesOn();
  const { adapter } = call;
  const prepared = call.prepare(tokens);
  return checkedSequence(adapter ? { ...prepared, adapter } : prepared, backend);
}

/** The sequence, if the device can take it. @throws InvalidInput */
export function checkedSequence(sequence: SequenceInput, backend: Backend): SequenceInput {
  if (backend.checksSlots) checkInputs(backend.config, sequence);
  else checkSequence(backend.config, backend.pageSize * backend.pageCount, sequence);
  return sequence;
}
