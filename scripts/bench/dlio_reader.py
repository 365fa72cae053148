"""Reader plug-in of DLIO for scripts/bench/dlio (`reader_classname`): its reader of indexed files without one debug line.

`FormatReader.read_index` of DLIO 2.0.0 formats its map of all samples for each sample, and throws the text away unless it debugs. With
thousands of samples that takes longer than the read.
"""
from dlio_benchmark.reader.indexed_binary_reader import IndexedBinaryReader


class QuietReader(IndexedBinaryReader):
    def read_index(self, global_sample_idx, step):
        self.step, self.image_idx = step, global_sample_idx
        filename, sample_index = self.global_index_map[global_sample_idx]
        if filename not in self.open_file_map:
            self.open_file_map[filename] = self.open(filename)
        self.get_sample(filename, sample_index)
        self.preprocess()
        return self._args.resized_image
