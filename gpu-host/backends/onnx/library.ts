// Everything imports ONNX Runtime from here: what a library's environment says must be set before it is loaded.
import './no-telemetry.ts';

export { InferenceSession, Tensor } from 'onnxruntime-node';
