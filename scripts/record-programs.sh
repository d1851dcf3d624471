#!/usr/bin/env bash
# Records parallel programs of Debian with their computation, for the sweeps of programs
# (scenarios/cee/programs.toml, programs-routing.toml): what `sluicegate trace` writes goes to
# DIR/PROGRAM-RANKS.bin. What is there already stays. On two CPUs 64 ranks take about four minutes.
#
#   record-programs.sh DIR [RANKS…]   64 by default; of each a power of two
#
# lammps         molecular dynamics: a peptide in water (Debian's example, eight times), CHARMM
#                potentials, electrostatics by PPPM, whose FFT is an all-to-all
# ico            OpenFOAM's icoFoam: incompressible flow in a cube whose lid moves; PISO, the pressure
#                by conjugate gradients
# rho-central    OpenFOAM's rhoCentralFoam: compressible, inviscid flow in the same cube; explicit
# shallow-water  OpenFOAM's shallowWaterFoam: the equations of a layer of air or water on a
#                rotating plane, the simplest model of weather; a grid in two dimensions
#
# STEPS: time steps of each (2 of ico and shallow-water, 5 of the others). CELLS: cells of the
# cube's and of the plane's side ("80 960"). PROGRAMS: which of them. COPIES: of the peptide's box in
# each direction (2).
set -euo pipefail
# shellcheck source=scripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

SLUICEGATE=$(realpath "${SLUICEGATE:-$SG_ROOT/target/release/sluicegate}")
PROGRAMS=${PROGRAMS:-lammps ico rho-central shallow-water}
COPIES=${COPIES:-2}
read -r cube plane <<<"${CELLS:-80 960}"
mkdir -p "${1:?usage: record-programs.sh DIR [RANKS…]}"
out=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- 64

"$SG_ROOT/scripts/setup.sh" programs >&2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# OpenFOAM finds its defaults there.
export WM_PROJECT_DIR=/usr/share/openfoam

# file CLASS PATH: writes a file of OpenFOAM, whose content comes from the standard input.
file() {
	mkdir -p "$(dirname "$2")"
	{
		echo "FoamFile { version 2.0; format ascii; class $1; object $(basename "$2"); }"
		cat
	} >"$2"
}

# field CLASS NAME DIMENSIONS VALUE LID OTHERS: an initial field, with what holds at the lid and at
# the other sides.
field() {
	file "$1" "0/$2" <<-FOAM
		dimensions [$3];
		internalField uniform $4;
		boundaryField { lid { $5 } sides { $6 } ground { type empty; } }
	FOAM
}

# split RANKS DIMENSIONS: factors of two, one after the other to each dimension, as "4 2 2".
split() {
	local parts=(1 1 1) at=0 left=$1
	while [ "$left" -gt 1 ]; do
		[ $((left % 2)) -eq 0 ] || die "$1 ranks: no power of two"
		parts[at]=$((parts[at] * 2)) left=$((left / 2)) at=$(((at + 1) % $2))
	done
	echo "${parts[@]}"
}

# grid RANKS CELLS DIMENSIONS SCALE: a cube, or with two dimensions a plane, in parts for the ranks.
grid() {
	local cells="$2 $2 $2" type=wall faces="(0 3 2 1) (4 5 6 7)" ground=
	if [ "$3" -eq 2 ]; then
		cells="$2 $2 1" type=patch ground="ground { type empty; faces ($faces); }" faces=
	fi
	file dictionary system/blockMeshDict <<-FOAM
		scale $4;
		vertices ((0 0 0) (1 0 0) (1 1 0) (0 1 0) (0 0 1) (1 0 1) (1 1 1) (0 1 1));
		blocks (hex (0 1 2 3 4 5 6 7) ($cells) simpleGrading (1 1 1));
		boundary
		(
		    lid { type $type; faces ((3 7 6 2)); }
		    sides { type $type; faces ((0 4 7 3) (2 6 5 1) (1 5 4 0) $faces); }
		    $ground
		);
	FOAM
	file dictionary system/decomposeParDict <<-FOAM
		numberOfSubdomains $1;
		method hierarchical;
		hierarchicalCoeffs { n ($(split "$1" "$3")); order xyz; }
	FOAM
}

# steps SOLVER NUMBER SECONDS: so many time steps; nothing is written.
steps() {
	file dictionary system/controlDict <<-FOAM
		application $1;
		startFrom startTime; startTime 0;
		stopAt endTime; endTime $(awk "BEGIN { print $2 * $3 }"); deltaT $3;
		writeControl timeStep; writeInterval 1000000; runTimeModifiable false;
		adjustTimeStep no; maxCo 1; maxDeltaT 1;
	FOAM
}

# schemes TIME LINES: discretization.
schemes() {
	file dictionary system/fvSchemes <<-FOAM
		ddtSchemes { default $1; }
		gradSchemes { default Gauss linear; }
		laplacianSchemes { default Gauss linear corrected; }
		snGradSchemes { default corrected; }
		$2
	FOAM
}

ico() {
	grid "$1" "$cube" 3 1
	steps icoFoam "${STEPS:-2}" 0.001
	schemes Euler "divSchemes { default Gauss linear; } interpolationSchemes { default linear; }"
	file dictionary system/fvSolution <<-'FOAM'
		solvers
		{
		    p { solver PCG; preconditioner DIC; tolerance 1e-6; relTol 0.05; maxIter 40; }
		    pFinal { $p; relTol 0; }
		    U { solver smoothSolver; smoother symGaussSeidel; tolerance 1e-5; relTol 0; }
		}
		PISO { nCorrectors 2; nNonOrthogonalCorrectors 0; pRefCell 0; pRefValue 0; }
	FOAM
	file dictionary constant/transportProperties <<<"nu 0.01;"
	field volVectorField U "0 1 -1 0 0 0 0" "(0 0 0)" "type fixedValue; value uniform (1 0 0);" "type noSlip;"
	field volScalarField p "0 2 -2 0 0 0 0" 0 "type zeroGradient;" "type zeroGradient;"
}

rho-central() {
	grid "$1" "$cube" 3 1
	steps rhoCentralFoam "${STEPS:-5}" 1e-5
	schemes Euler "fluxScheme Kurganov; divSchemes { default Gauss linear; }
		interpolationSchemes { default linear; reconstruct(rho) vanLeer; reconstruct(U) vanLeerV; reconstruct(T) vanLeer; }"
	file dictionary system/fvSolution <<<'solvers { "(rho|rhoU|rhoE)" { solver diagonal; } }'
	file dictionary constant/thermophysicalProperties <<-FOAM
		thermoType
		{
		    type hePsiThermo; mixture pureMixture; transport const; thermo hConst;
		    equationOfState perfectGas; specie specie; energy sensibleInternalEnergy;
		}
		mixture
		{
		    specie { molWeight 28.96; }
		    thermodynamics { Cp 1004.5; Hf 0; }
		    transport { mu 0; Pr 1; }
		}
	FOAM
	file dictionary constant/turbulenceProperties <<<"simulationType laminar;"
	field volVectorField U "0 1 -1 0 0 0 0" "(0 0 0)" "type fixedValue; value uniform (100 0 0);" "type slip;"
	field volScalarField p "1 -1 -2 0 0 0 0" 1e5 "type zeroGradient;" "type zeroGradient;"
	field volScalarField T "0 0 0 1 0 0 0" 300 "type zeroGradient;" "type zeroGradient;"
}

shallow-water() {
	grid "$1" "$plane" 2 1e6
	steps shallowWaterFoam "${STEPS:-2}" 20
	schemes "CrankNicolson 0.9" "divSchemes { default Gauss linear; } interpolationSchemes { default linear; }"
	file dictionary system/fvSolution <<-'FOAM'
		solvers
		{
		    h { solver PCG; preconditioner DIC; tolerance 1e-6; relTol 0.01; maxIter 40; }
		    hFinal { $h; relTol 0; }
		    hU { solver smoothSolver; smoother symGaussSeidel; tolerance 1e-6; relTol 0.1; }
		    hUFinal { $hU; relTol 0; }
		}
		PIMPLE { nOuterCorrectors 3; nCorrectors 1; nNonOrthogonalCorrectors 0; momentumPredictor yes; }
	FOAM
	file dictionary constant/gravitationalProperties <<-FOAM
		g [0 1 -2 0 0 0 0] (0 0 -9.81);
		rotating true;
		Omega [0 0 -1 0 0 0 0] (0 0 7.292e-5);
	FOAM
	field volVectorField hU "0 2 -1 0 0 0 0" "(1000 0 0)" "type fixedValue; value uniform (1000 100 0);" "type zeroGradient;"
	field volVectorField U "0 1 -1 0 0 0 0" "(0.1 0 0)" "type calculated; value uniform (0 0 0);" "type calculated; value uniform (0 0 0);"
	for height in h hTotal; do field volScalarField $height "0 1 0 0 0 0 0" 10000 "type zeroGradient;" "type zeroGradient;"; done
	field volScalarField h0 "0 1 0 0 0 0 0" 0 "type zeroGradient;" "type zeroGradient;"
}

lammps() {
	cp /usr/share/lammps/examples/peptide/data.peptide .
	sed "/^dump/d; s/^run.*/run ${STEPS:-5}/; s/^\(read_data.*\)/\1\nreplicate $COPIES $COPIES $COPIES/" \
		/usr/share/lammps/examples/peptide/in.peptide >in.peptide
}

# command_of PROGRAM: what mpirun starts.
command_of() {
	case $1 in
	lammps) echo lmp -in in.peptide -log none -screen none ;;
	ico) echo icoFoam -parallel ;;
	rho-central) echo rhoCentralFoam -parallel ;;
	shallow-water) echo shallowWaterFoam -parallel ;;
	*) die "$1: no such program" ;;
	esac
}

# record PROGRAM RANKS: into DIR, whole or not at all.
record() {
	local result=$out/$1-$2.bin command
	[ ! -e "$result" ] || { echo "$result is there already"; return; }
	command=$(command_of "$1")
	say "$1, $2 ranks"
	mkdir "$dir/$1-$2"
	cd "$dir/$1-$2"
	"$1" "$2"
	if [ -d system ]; then
		{ blockMesh && decomposePar; } >log 2>&1 || { cat log >&2; die "$1: no grid"; }
	fi
	# Words of the command, and of what root needs.
	# shellcheck disable=SC2046,SC2086
	"$SLUICEGATE" trace --out recorded.bin -- mpirun -n "$2" --oversubscribe \
		$([ "$(id -u)" -ne 0 ] || echo --allow-run-as-root) $command >log 2>&1 || { cat log >&2; die "$1 failed"; }
	sed -n '/^figure/,$p' log
	mv recorded.bin "$result"
	cd "$SG_ROOT"
	rm -rf "${dir:?}/$1-$2"
}

for ranks in "$@"; do
	for program in $PROGRAMS; do record "$program" "$ranks"; done
done
