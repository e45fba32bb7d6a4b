# Entry points for people; the build itself is CMake (see CMakePresets.json).
PREFIX ?= /usr/local
SECONDS ?= 60

.PHONY: help demo test install uninstall package wheel bench release fuzz fuzz-replay format format-check lint clean

help:
	@echo "make demo          install dependencies, build, train on Fashion-MNIST, evaluate"
	@echo "make test          install dependencies, build, run all tests"
	@echo "make install       build the tool and put it, its manual page, shell completion and configs"
	@echo "                   under PREFIX (/usr/local); make uninstall removes them"
	@echo "make package       build a .deb and a .tar.gz of the tool"
	@echo "make wheel         build a wheel of the Python package (or: pip install .)"
	@echo "make bench         build and measure, beside other frameworks if they are installed"
	@echo "                   (BENCH=\"--only 784-512-10:128\"; scripts/bench --help has the rest)"
	@echo "make release       build the package for every GPU from sm_75 on (needs nvcc; long)"
	@echo "make fuzz          fuzz what reads files, each target for SECONDS (60); make fuzz-replay runs the kept"
	@echo "                   inputs under the sanitizers (both need clang)"
	@echo "make format        format the sources;  make format-check lists those that need it"
	@echo "make lint          clang-tidy"
	@echo "make clean         remove build/"

demo:
	@scripts/install-deps --for demo
	@scripts/build tool
	@scripts/demo

test:
	@scripts/install-deps --for test
	@scripts/build all
	@scripts/test

install:
	@scripts/install-deps --for demo
	@scripts/build tool
	@scripts/install-tool "$(PREFIX)"

uninstall:
	@scripts/install-tool --remove

package:
	@scripts/install-deps --for package
	@scripts/build tool
	@scripts/package

wheel:
	@scripts/install-deps --for wheel
	@scripts/wheel

bench:
	@scripts/install-deps --for bench
	@scripts/build tool
	@scripts/bench $(BENCH)

release:
	@scripts/install-deps --for package
	@scripts/release

fuzz:
	@scripts/install-deps --for fuzz
	@scripts/fuzz --seconds $(SECONDS)

fuzz-replay:
	@scripts/install-deps --for fuzz
	@scripts/fuzz --replay

format:
	@scripts/install-deps --for format
	@scripts/format

format-check:
	@scripts/install-deps --for format
	@scripts/format --check

lint:
	@scripts/install-deps --for lint
	@scripts/build all
	@scripts/lint

clean:
	rm -rf build
